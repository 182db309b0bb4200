"""Vision transformers that classify images. Names: transformers, `ViTForImageClassification`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ir.meganeura import Graph
from jax_backend.models import layers
from jax_backend.models.config import HuggingFaceConfig
from jax_backend.models.parameters import Load, Model, Parameters, flat


@dataclass(frozen=True)
class ViTConfig(HuggingFaceConfig):
    """The sizes of a vision transformer, under the names of a Hugging Face `config.json`."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    image_size: int
    patch_size: int
    num_labels: int
    layer_norm_eps: float = 1e-12

    @classmethod
    def complete(cls, found: dict[str, Any]) -> None:
        """The labels may be named instead of counted."""
        found.setdefault("num_labels", len(found.get("id2label") or "ab"))

    @property
    def num_patches(self) -> int:
        """Squares of an image."""
        return (self.image_size // self.patch_size) ** 2


def build_graph(config: ViTConfig) -> Model:
    """`image` (3 x size x size), flat -> logits (1, labels), then the states (1 + patches, hidden)."""
    made = _ViT(config)
    states = made.states()
    rows = made.graph.reshape(states, ((config.num_patches + 1) * config.hidden_size,))
    first = made.graph.split_a(rows, 1, 1, config.num_patches, config.hidden_size)
    token = made.graph.reshape(first, (1, config.hidden_size))
    logits = made.parameters.linear(token, "classifier", config.hidden_size, config.num_labels)
    return made.parameters.finish(logits, states)


def _without_batch(name: str) -> Load:
    """A tensor (1, rows, hidden) as (rows, hidden)."""
    return lambda tensors: np.squeeze(tensors[name], 0)


class _ViT:
    """One encoder in the making."""

    def __init__(self, config: ViTConfig) -> None:
        self.config = config
        self.graph = Graph()
        self.parameters = Parameters(self.graph)

    def states(self) -> int:
        x = self._embedded()
        for layer in range(self.config.num_hidden_layers):
            x = self._layer(x, f"vit.encoder.layer.{layer}")
        return self._norm(x, "vit.layernorm")

    def _embedded(self) -> int:
        """The class token, then the patches, with their positions."""
        config, graph = self.config, self.graph
        size, count, patch = config.hidden_size, config.num_patches, config.patch_size
        name = "vit.embeddings"

        def rows(part: str, number: int) -> int:
            return self.parameters.declare(f"{name}.{part}", (number, size), _without_batch(f"{name}.{part}"))

        image = graph.input("image", (3 * config.image_size**2,))
        weight = f"{name}.patch_embeddings.projection.weight"
        kernel = self.parameters.declare(weight, (size * 3 * patch * patch,), flat(weight))
        shape = (1, 3, config.image_size, config.image_size, size, patch, patch, patch, 0)
        patches = graph.transpose(graph.reshape(graph.conv2d(image, kernel, *shape), (size, count)))
        bias = self.parameters.declare(f"{name}.patch_embeddings.projection.bias", (size,))
        patches = graph.reshape(graph.bias_add(patches, bias), (count * size,))
        token = graph.reshape(rows("cls_token", 1), (size,))
        x = graph.reshape(graph.concat(token, patches, 1, 1, count, size), (count + 1, size))
        return graph.add(x, rows("position_embeddings", count + 1))

    def _layer(self, x: int, name: str) -> int:
        config, graph, linear = self.config, self.graph, self.parameters.linear
        size, heads = config.hidden_size, config.num_attention_heads
        h = self._norm(x, f"{name}.layernorm_before")
        parts = ("query", "key", "value")
        q, k, v = (linear(h, f"{name}.attention.attention.{part}", size, size) for part in parts)
        found = graph.full_attention(q, k, v, heads, heads, size // heads)
        x = graph.add(x, linear(found, f"{name}.attention.output.dense", size, size))
        h = self._norm(x, f"{name}.layernorm_after")
        h = layers.gelu(graph, linear(h, f"{name}.intermediate.dense", size, config.intermediate_size))
        return graph.add(x, linear(h, f"{name}.output.dense", config.intermediate_size, size))

    def _norm(self, x: int, name: str) -> int:
        return self.parameters.layer_norm(x, name, self.config.hidden_size, self.config.layer_norm_eps)
