"""Pooling. Source: burn-ir `ModuleOperationIr`. Padding counts on both sides; x is (N, C, L), (N, C, H, W) or 5-d."""

from ir.dtype import Dim
from ir.op import In, Op, Out
from ir.registry import MODULE, kind

Pair = tuple[Dim, Dim]
Triple = tuple[Dim, Dim, Dim]


@kind(*MODULE)
class AvgPool1d(Op):
    """Mean over windows; padding counts as zeros with `count_include_pad`, else not at all."""

    x: In
    kernel_size: Dim
    stride: Dim
    padding: Dim
    count_include_pad: bool
    ceil_mode: bool
    out: Out


@kind(*MODULE)
class AvgPool2d(Op):
    """Mean over windows; padding counts as zeros with `count_include_pad`, else not at all."""

    x: In
    kernel_size: Pair
    stride: Pair
    padding: Pair
    count_include_pad: bool
    ceil_mode: bool
    out: Out


@kind(*MODULE)
class AvgPool1dBackward(Op):
    """Gradient of `AvgPool1d`."""

    x: In
    grad: In
    kernel_size: Dim
    stride: Dim
    padding: Dim
    count_include_pad: bool
    ceil_mode: bool
    out: Out


@kind(*MODULE)
class AvgPool2dBackward(Op):
    """Gradient of `AvgPool2d`."""

    x: In
    grad: In
    kernel_size: Pair
    stride: Pair
    padding: Pair
    count_include_pad: bool
    ceil_mode: bool
    out: Out


class AdaptiveBackward(Op):
    """Gradient of an adaptive pool."""

    x: In
    grad: In
    out: Out


@kind(*MODULE)
class AdaptiveAvgPool1d(Op):
    """Means over windows that cut the axis into `output_size` parts."""

    x: In
    output_size: Dim
    out: Out


@kind(*MODULE)
class AdaptiveAvgPool2d(Op):
    """Means over windows that cut each spatial axis into `output_size` parts."""

    x: In
    output_size: Pair
    out: Out


@kind(*MODULE)
class AdaptiveAvgPool3d(Op):
    """Means over windows that cut each spatial axis into `output_size` parts."""

    x: In
    output_size: Triple
    out: Out


@kind(*MODULE)
class AdaptiveAvgPool1dBackward(AdaptiveBackward):
    """Gradient of `AdaptiveAvgPool1d`."""


@kind(*MODULE)
class AdaptiveAvgPool2dBackward(AdaptiveBackward):
    """Gradient of `AdaptiveAvgPool2d`."""


@kind(*MODULE)
class AdaptiveAvgPool3dBackward(AdaptiveBackward):
    """Gradient of `AdaptiveAvgPool3d`."""


@kind(*MODULE)
class MaxPool1d(Op):
    """Maximum over windows; NaN wins, padding never does."""

    x: In
    kernel_size: Dim
    stride: Dim
    padding: Dim
    dilation: Dim
    ceil_mode: bool
    out: Out


@kind(*MODULE)
class MaxPool1dWithIndices(Op):
    """`MaxPool1d`, and where on the axis each maximum was found."""

    x: In
    kernel_size: Dim
    stride: Dim
    padding: Dim
    dilation: Dim
    ceil_mode: bool
    out: Out
    out_indices: Out


@kind(*MODULE)
class MaxPool1dWithIndicesBackward(Op):
    """Gradient of `MaxPool1d`: each gradient goes to the place that `indices` names."""

    x: In
    grad: In
    indices: In
    kernel_size: Dim
    stride: Dim
    padding: Dim
    dilation: Dim
    ceil_mode: bool
    out: Out


@kind(*MODULE)
class MaxPool2d(Op):
    """Maximum over windows; NaN wins, padding never does."""

    x: In
    kernel_size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    ceil_mode: bool
    out: Out


@kind(*MODULE)
class MaxPool2dWithIndices(Op):
    """`MaxPool2d`, and where in the flattened (H, W) plane each maximum was found."""

    x: In
    kernel_size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    ceil_mode: bool
    out: Out
    out_indices: Out


@kind(*MODULE)
class MaxPool2dWithIndicesBackward(Op):
    """Gradient of `MaxPool2d`: each gradient goes to the place that `indices` names."""

    x: In
    grad: In
    indices: In
    kernel_size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    ceil_mode: bool
    out: Out
