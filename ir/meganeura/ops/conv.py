"""Images, flat in NCHW order; the batch size N is the number of elements divided by C H W.

Source: meganeura `graph.rs`.
"""

from ir.meganeura.ops.records import U32Value, node_kind
from ir.op import In, Op, Out


@node_kind
class Conv2d(Op):
    """Cross-correlation, zero-padded, one stride for both axes; out_h = (in_h + 2 padding_h - kernel_h) // stride + 1.

    x flat (N, in_channels, in_h, in_w) · kernel flat (out_channels, in_channels, kernel_h, kernel_w)
    -> out flat (N, out_channels, out_h, out_w).
    """

    x: In
    kernel: In
    out: Out
    in_channels: U32Value
    in_h: U32Value
    in_w: U32Value
    out_channels: U32Value
    kernel_h: U32Value
    kernel_w: U32Value
    stride: U32Value
    padding_h: U32Value
    padding_w: U32Value


@node_kind
class Conv2dGradInput(Op):
    """Gradient of `Conv2d` for x."""

    grad_out: In
    kernel: In
    out: Out
    in_channels: U32Value
    in_h: U32Value
    in_w: U32Value
    out_channels: U32Value
    kernel_h: U32Value
    kernel_w: U32Value
    stride: U32Value
    padding_h: U32Value
    padding_w: U32Value


@node_kind
class Conv2dGradWeight(Op):
    """Gradient of `Conv2d` for its kernel, summed over the batch."""

    grad_out: In
    x: In
    out: Out
    in_channels: U32Value
    in_h: U32Value
    in_w: U32Value
    out_channels: U32Value
    kernel_h: U32Value
    kernel_w: U32Value
    stride: U32Value
    padding_h: U32Value
    padding_w: U32Value


@node_kind
class MaxPool2d(Op):
    """Maximum of each window; padding never wins.

    x flat (N, channels, in_h, in_w) -> out flat (N, channels, out_h, out_w), sized as those of `Conv2d`.
    """

    x: In
    out: Out
    channels: U32Value
    in_h: U32Value
    in_w: U32Value
    kernel_h: U32Value
    kernel_w: U32Value
    stride: U32Value
    padding: U32Value


@node_kind
class GlobalAvgPool(Op):
    """Mean of each image and channel. x flat (N, channels, spatial) -> out (N, channels)."""

    x: In
    out: Out
    channels: U32Value
    spatial: U32Value


@node_kind
class GlobalAvgPoolGrad(Op):
    """Gradient of `GlobalAvgPool`: out.flat[i] = grad_out.flat[i // spatial] / spatial."""

    grad_out: In
    out: Out
    channels: U32Value
    spatial: U32Value


@node_kind
class Concat(Op):
    """Channels of b after those of a, image by image.

    a flat (N, channels_a, spatial) · b flat (N, channels_b, spatial) -> out flat (N, channels_a + channels_b, spatial).
    """

    a: In
    b: In
    out: Out
    channels_a: U32Value
    channels_b: U32Value
    spatial: U32Value


class SplitShape(Op):
    """x flat (N, channels_a + channels_b, spatial)."""

    x: In
    out: Out
    channels_a: U32Value
    channels_b: U32Value
    spatial: U32Value


@node_kind
class SplitA(SplitShape):
    """The first channels -> out flat (N, channels_a, spatial)."""


@node_kind
class SplitB(SplitShape):
    """The last channels -> out flat (N, channels_b, spatial)."""


@node_kind
class Upsample2x(Op):
    """Each pixel four times. x flat (N, channels, in_h, in_w) -> out flat (N, channels, 2 in_h, 2 in_w)."""

    x: In
    out: Out
    channels: U32Value
    in_h: U32Value
    in_w: U32Value


@node_kind
class Upsample2xGrad(Op):
    """Gradient of `Upsample2x`: sums of 2 by 2 pixels.

    grad_out flat (N, channels, 2 in_h, 2 in_w) -> out flat (N, channels, in_h, in_w).
    """

    grad_out: In
    out: Out
    channels: U32Value
    in_h: U32Value
    in_w: U32Value
