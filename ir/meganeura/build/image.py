"""Builder methods for images, flat in NCHW order."""

from typing import NamedTuple, TypedDict

from ir.meganeura.core import GraphCore
from ir.meganeura.ops import conv, norm
from ir.meganeura.rules.image import window_count
from ir.meganeura.types import NodeId, TensorType


class _Groups(TypedDict):
    num_groups: int
    eps: float
    channels: int
    spatial: int


class _Channels(TypedDict):
    channels_a: int
    channels_b: int
    spatial: int


class _ConvSizes(NamedTuple):
    in_channels: int
    in_h: int
    in_w: int
    out_channels: int
    kernel_h: int
    kernel_w: int
    stride: int
    padding_h: int
    padding_w: int


class ImageBuilder(GraphCore):
    """Every method appends one node, checks it and returns its id. `spatial` is H W, `batch` the number of images."""

    __slots__ = ()

    def group_norm(
        self,
        x: NodeId,
        weight: NodeId,
        bias: NodeId,
        _batch: int,
        channels: int,
        spatial: int,
        num_groups: int,
        eps: float,
    ) -> NodeId:
        """Groups of channels with mean 0 and variance 1, then weight and bias per channel; `_batch` is not used."""
        groups = _Groups(num_groups=num_groups, eps=eps, channels=channels, spatial=spatial)
        return self.append(norm.GroupNorm, [x, weight, bias], **groups)

    def group_norm_grad_input(
        self,
        grad_output: NodeId,
        input: NodeId,
        weight: NodeId,
        batch: int,
        channels: int,
        spatial: int,
        num_groups: int,
        eps: float,
    ) -> NodeId:
        """Gradient of `group_norm` for x, flat."""
        groups = _Groups(num_groups=num_groups, eps=eps, channels=channels, spatial=spatial)
        ty = TensorType.f32([batch * channels * spatial])
        return self.append(norm.GroupNormGradInput, [grad_output, input, weight], ty, **groups)

    def group_norm_grad_weight_bias(
        self, grad_output: NodeId, input: NodeId, channels: int, spatial: int, num_groups: int, eps: float
    ) -> NodeId:
        """Gradient of `group_norm` for weight, then bias -> [2 channels]."""
        groups = _Groups(num_groups=num_groups, eps=eps, channels=channels, spatial=spatial)
        return self.append(norm.GroupNormGradWeightBias, [grad_output, input], **groups)

    def concat(self, a: NodeId, b: NodeId, batch: int, channels_a: int, channels_b: int, spatial: int) -> NodeId:
        """Channels of b after those of a, image by image."""
        ty = TensorType.f32([batch * (channels_a + channels_b) * spatial])
        channels = _Channels(channels_a=channels_a, channels_b=channels_b, spatial=spatial)
        return self.append(conv.Concat, [a, b], ty, **channels)

    def split_a(self, x: NodeId, batch: int, channels_a: int, channels_b: int, spatial: int) -> NodeId:
        """The first channels_a channels of each image."""
        ty = TensorType.f32([batch * channels_a * spatial])
        channels = _Channels(channels_a=channels_a, channels_b=channels_b, spatial=spatial)
        return self.append(conv.SplitA, [x], ty, **channels)

    def split_b(self, x: NodeId, batch: int, channels_a: int, channels_b: int, spatial: int) -> NodeId:
        """The last channels_b channels of each image."""
        ty = TensorType.f32([batch * channels_b * spatial])
        channels = _Channels(channels_a=channels_a, channels_b=channels_b, spatial=spatial)
        return self.append(conv.SplitB, [x], ty, **channels)

    def upsample_2x(self, x: NodeId, batch: int, channels: int, in_h: int, in_w: int) -> NodeId:
        """Each pixel four times."""
        ty = TensorType.f32([batch * channels * in_h * in_w * 4])
        return self.append(conv.Upsample2x, [x], ty, channels=channels, in_h=in_h, in_w=in_w)

    def upsample_2x_grad(self, grad_output: NodeId, batch: int, channels: int, in_h: int, in_w: int) -> NodeId:
        """Sums of 2 by 2 pixels; in_h and in_w are those of the small image."""
        ty = TensorType.f32([batch * channels * in_h * in_w])
        return self.append(conv.Upsample2xGrad, [grad_output], ty, channels=channels, in_h=in_h, in_w=in_w)

    def conv2d(
        self,
        input: NodeId,
        kernel: NodeId,
        batch: int,
        in_channels: int,
        in_h: int,
        in_w: int,
        out_channels: int,
        kernel_h: int,
        kernel_w: int,
        stride: int,
        padding: int,
    ) -> NodeId:
        """`conv2d_hw` with equal padding of both axes."""
        sizes = (batch, in_channels, in_h, in_w, out_channels, kernel_h, kernel_w, stride, padding, padding)
        return self.conv2d_hw(input, kernel, *sizes)

    def conv2d_hw(
        self,
        input: NodeId,
        kernel: NodeId,
        batch: int,
        in_channels: int,
        in_h: int,
        in_w: int,
        out_channels: int,
        kernel_h: int,
        kernel_w: int,
        stride: int,
        padding_h: int,
        padding_w: int,
    ) -> NodeId:
        """Cross-correlation with a kernel flat (out_channels, in_channels, kernel_h, kernel_w)."""
        out_h = window_count("Conv2d", "h", in_h, kernel_h, stride, padding_h)
        out_w = window_count("Conv2d", "w", in_w, kernel_w, stride, padding_w)
        sizes = _ConvSizes(in_channels, in_h, in_w, out_channels, kernel_h, kernel_w, stride, padding_h, padding_w)
        ty = TensorType.f32([batch * out_channels * out_h * out_w])
        return self.append(conv.Conv2d, [input, kernel], ty, **sizes._asdict())

    def conv2d_grad_input(
        self,
        grad_output: NodeId,
        kernel: NodeId,
        batch: int,
        in_channels: int,
        in_h: int,
        in_w: int,
        out_channels: int,
        kernel_h: int,
        kernel_w: int,
        stride: int,
        padding_h: int,
        padding_w: int,
    ) -> NodeId:
        """Gradient of `conv2d_hw` for its input."""
        ty = TensorType.f32([batch * in_channels * in_h * in_w])
        sizes = _ConvSizes(in_channels, in_h, in_w, out_channels, kernel_h, kernel_w, stride, padding_h, padding_w)
        return self.append(conv.Conv2dGradInput, [grad_output, kernel], ty, **sizes._asdict())

    def conv2d_grad_weight(
        self,
        grad_output: NodeId,
        input: NodeId,
        in_channels: int,
        in_h: int,
        in_w: int,
        out_channels: int,
        kernel_h: int,
        kernel_w: int,
        stride: int,
        padding_h: int,
        padding_w: int,
    ) -> NodeId:
        """Gradient of `conv2d_hw` for its kernel."""
        sizes = _ConvSizes(in_channels, in_h, in_w, out_channels, kernel_h, kernel_w, stride, padding_h, padding_w)
        return self.append(conv.Conv2dGradWeight, [grad_output, input], **sizes._asdict())

    def max_pool_2d(
        self,
        input: NodeId,
        batch: int,
        channels: int,
        in_h: int,
        in_w: int,
        kernel_h: int,
        kernel_w: int,
        stride: int,
        padding: int,
    ) -> NodeId:
        """Maximum of each window."""
        out_h = window_count("MaxPool2d", "h", in_h, kernel_h, stride, padding)
        out_w = window_count("MaxPool2d", "w", in_w, kernel_w, stride, padding)
        return self.append(
            conv.MaxPool2d,
            [input],
            TensorType.f32([batch * channels * out_h * out_w]),
            channels=channels,
            in_h=in_h,
            in_w=in_w,
            kernel_h=kernel_h,
            kernel_w=kernel_w,
            stride=stride,
            padding=padding,
        )

    def global_avg_pool(self, input: NodeId, batch: int, channels: int, spatial: int) -> NodeId:
        """Mean of each image and channel -> [batch, channels]."""
        ty = TensorType.f32([batch, channels])
        return self.append(conv.GlobalAvgPool, [input], ty, channels=channels, spatial=spatial)
