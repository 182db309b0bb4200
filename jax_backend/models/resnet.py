"""Residual networks, as torchvision names their parts; batch norms are folded into the convolutions before them.

Source: meganeura `models/resnet.rs`, for the nodes and their order; torchvision `models/resnet.py` for the names.
"""

from dataclasses import dataclass
from typing import Final

from ir.meganeura import Graph
from jax_backend.models.parameters import BatchNorm, Model, Parameters


@dataclass(frozen=True)
class ResNetConfig:
    """The sizes of a residual network.

    `blocks` counts those of each stage; a bottleneck has three convolutions and four times the channels, any other two.
    """

    blocks: tuple[int, ...]
    bottleneck: bool
    num_classes: int = 1000
    image_size: int = 224
    """Height and width, in pixels."""


RESNET18: Final = ResNetConfig((2, 2, 2, 2), bottleneck=False)
RESNET50: Final = ResNetConfig((3, 4, 6, 3), bottleneck=True)


def build_graph(config: ResNetConfig, batch: int) -> Model:
    """`image` (batch x 3 x size x size), flat -> logits (batch, classes)."""
    made = _ResNet(config, batch)
    return made.parameters.finish(made.logits())


def build_training_graph(config: ResNetConfig, batch: int) -> Model:
    """`image` as in `build_graph`, `labels` (batch, classes) -> mean cross entropy (1). Batch norms stay folded."""
    made = _ResNet(config, batch)
    logits = made.logits()
    labels = made.graph.input("labels", (batch, config.num_classes))
    return made.parameters.finish(made.graph.cross_entropy_loss(logits, labels))


@dataclass(frozen=True)
class _Features:
    """A node that holds (batch, channels, size, size), flat."""

    node: int
    channels: int
    size: int


class _ResNet:
    """One network in the making."""

    def __init__(self, config: ResNetConfig, batch: int) -> None:
        self.config = config
        self.batch = batch
        self.graph = Graph()
        self.parameters = Parameters(self.graph)

    def logits(self) -> int:
        config, graph, batch = self.config, self.graph, self.batch
        size = config.image_size
        image = graph.input("image", (batch * 3 * size * size,))
        x = self._activated(self._conv(_Features(image, 3, size), "conv1", "bn1", 64, 7, 2))
        pooled = graph.max_pool_2d(x.node, batch, x.channels, x.size, x.size, 3, 3, 2, 1)
        x = _Features(pooled, x.channels, (x.size + 2 - 3) // 2 + 1)
        for stage, count in enumerate(config.blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                x = self._block(x, f"layer{stage + 1}.{block}", 64 << stage, stride)
        features = graph.global_avg_pool(x.node, batch, x.channels, x.size * x.size)
        return self.parameters.linear(features, "fc", x.channels, config.num_classes)

    def _block(self, x: _Features, name: str, channels: int, stride: int) -> _Features:
        if self.config.bottleneck:
            layers = ((channels, 1, 1), (channels, 3, stride), (4 * channels, 1, 1))
        else:
            layers = ((channels, 3, stride), (channels, 3, 1))
        h = x
        for n, (out, kernel, step) in enumerate(layers, 1):
            h = self._conv(h, f"{name}.conv{n}", f"{name}.bn{n}", out, kernel, step)
            if n < len(layers):
                h = self._activated(h)
        if stride > 1 or x.channels != h.channels:
            x = self._conv(x, f"{name}.downsample.0", f"{name}.downsample.1", h.channels, 1, stride)
        return self._activated(_Features(self.graph.add(h.node, x.node), h.channels, h.size))

    def _conv(self, x: _Features, conv: str, norm: str, channels: int, kernel: int, stride: int) -> _Features:
        """A convolution without bias, and the batch norm after it."""
        batch, padding = self.batch, kernel // 2
        folded = BatchNorm(norm)
        weight = self.parameters.declare(
            f"{conv}.weight", (channels * x.channels * kernel * kernel,), folded.kernel(f"{conv}.weight")
        )
        shape = (batch, x.channels, x.size, x.size, channels, kernel, kernel, stride, padding)
        made = self.graph.conv2d(x.node, weight, *shape)
        size = (x.size + 2 * padding - kernel) // stride + 1
        full = folded.bias(batch, size * size)
        bias = self.parameters.declare(f"{norm}.fused_bias", (batch * channels * size * size,), full)
        return _Features(self.graph.add(made, bias), channels, size)

    def _activated(self, x: _Features) -> _Features:
        return _Features(self.graph.relu(x.node), x.channels, x.size)
