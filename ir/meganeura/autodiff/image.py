"""Gradients of images. What an image kind reads may have any shape; its gradient gets the same."""

from collections.abc import Callable

from ir.meganeura.autodiff.tape import Tape, gradient, node_of, type_of
from ir.meganeura.node import attributes_of
from ir.meganeura.ops import conv, norm
from ir.meganeura.ops.leaf import Constant
from ir.meganeura.types import NodeId, TensorType


@gradient(conv.Conv2d)
def conv2d(t: Tape, op: conv.Conv2d, g: NodeId) -> None:
    """One node each."""
    sizes = attributes_of(op)
    for_x = t.graph.append(conv.Conv2dGradInput, [g, node_of(op.kernel)], type_of(op.x), **sizes)
    for_kernel = t.graph.append(conv.Conv2dGradWeight, [g, node_of(op.x)], type_of(op.kernel), **sizes)
    t.give(op.x, for_x)
    t.give(op.kernel, for_kernel)


@gradient(norm.GroupNorm)
def group_norm(t: Tape, op: norm.GroupNorm, g: NodeId) -> None:
    """One node for x, one for weight and bias together, which is split."""
    _group_norm(t, op, g)


def _group_norm(t: Tape, op: norm.GroupNormShape, g: NodeId) -> None:
    x, groups = node_of(op.x), attributes_of(op)
    t.give(op.x, t.graph.append(norm.GroupNormGradInput, [g, x, node_of(op.weight)], type_of(op.x), **groups))
    both = t.graph.append(norm.GroupNormGradWeightBias, [g, x], **groups)
    halves = {"channels_a": op.channels, "channels_b": op.channels, "spatial": 1}
    for_weight = t.graph.append(conv.SplitA, [both], type_of(op.weight), **halves)
    for_bias = t.graph.append(conv.SplitB, [both], type_of(op.bias), **halves)
    t.give(op.weight, for_weight)
    t.give(op.bias, for_bias)


@gradient(norm.GroupNormSilu)
def group_norm_silu(t: Tape, op: norm.GroupNormSilu, g: NodeId) -> None:
    """The norm is made again for the gradient of silu."""
    inputs = [node_of(x) for x in (op.x, op.weight, op.bias)]
    normed = t.graph.append(norm.GroupNorm, inputs, **attributes_of(op))
    _group_norm(t, op, t.graph.silu_grad(g, normed))


@gradient(conv.Concat)
def concat(t: Tape, op: conv.Concat, g: NodeId) -> None:
    """The channels of each."""
    channels = attributes_of(op)
    for_a = t.graph.append(conv.SplitA, [g], type_of(op.a), **channels)
    for_b = t.graph.append(conv.SplitB, [g], type_of(op.b), **channels)
    t.give(op.a, for_a)
    t.give(op.b, for_b)


@gradient(conv.SplitA)
def split_a(t: Tape, op: conv.SplitA, g: NodeId) -> None:
    """G, and zeros for the other channels."""
    zeros = t.graph.full(0.0, [_rest(op)])
    t.give(op.x, t.graph.append(conv.Concat, [g, zeros], type_of(op.x), **attributes_of(op)))


@gradient(conv.SplitB)
def split_b(t: Tape, op: conv.SplitB, g: NodeId) -> None:
    """Zeros for the other channels, and g."""
    zeros = t.graph.full(0.0, [_rest(op)])
    t.give(op.x, t.graph.append(conv.Concat, [zeros, g], type_of(op.x), **attributes_of(op)))


def _rest(op: conv.SplitShape) -> int:
    return type_of(op.x).num_elements() - type_of(op.out).num_elements()


@gradient(conv.Upsample2x)
def upsample_2x(t: Tape, op: conv.Upsample2x, g: NodeId) -> None:
    """One node."""
    t.give(op.x, t.graph.append(conv.Upsample2xGrad, [g], type_of(op.x), **attributes_of(op)))


@gradient(conv.GlobalAvgPool)
def global_avg_pool(t: Tape, op: conv.GlobalAvgPool, g: NodeId) -> None:
    """One node."""
    t.give(op.x, t.graph.append(conv.GlobalAvgPoolGrad, [g], type_of(op.x), **attributes_of(op)))


@gradient(conv.MaxPool2d)
def max_pool_2d(t: Tape, op: conv.MaxPool2d, g: NodeId) -> None:
    """G to the first maximum of each window.

    No kind is that gradient, so it is made of convolutions over the images of single channels. A kernel with one 1
    copies the K elements of each window side by side; those that the maximum does not exceed are maxima; a kernel with
    ones before the diagonal counts the maxima before each; the one with none before it gets g, which the same copying
    takes back to its place. Multiplying by 1 is exact, so the comparison is.
    """
    windows = _Windows(t, op)
    copied = windows.copies_of(node_of(op.x))
    exceeded = t.graph.greater(windows.spread(node_of(op.out)), copied)
    maxima = t.minus(windows.full(1.0), exceeded)
    if op.padding:
        maxima = t.graph.mul(maxima, windows.copies_of(t.full(1.0, op.x)))  # padding is 0 here, and never wins
    first = t.graph.greater(maxima, windows.count_before(maxima))
    t.give(op.x, windows.back(t.graph.mul(first, windows.spread(g))))


class _Windows:
    """The K elements of the windows of a max pool, flat (N channels, K, out_h, out_w)."""

    def __init__(self, t: Tape, op: conv.MaxPool2d) -> None:
        self._t, self._op = t, op
        self._size = op.kernel_h * op.kernel_w
        self._out_h = (op.in_h + 2 * op.padding - op.kernel_h) // op.stride + 1
        self._out_w = (op.in_w + 2 * op.padding - op.kernel_w) // op.stride + 1
        self._count = type_of(op.out).num_elements() * self._size
        self._copy = self._square(lambda row, column: row == column)

    def _square(self, is_one: Callable[[int, int], bool]) -> NodeId:
        numbers = range(self._size)
        data = [float(is_one(row, column)) for row in numbers for column in numbers]  # K K, rows are channels out
        return self._t.graph.append(Constant, [], TensorType.f32([len(data)]), data=data)

    @property
    def _copying(self) -> dict[str, int]:
        op = self._op
        return {
            "in_channels": 1,
            "in_h": op.in_h,
            "in_w": op.in_w,
            "out_channels": self._size,
            "kernel_h": op.kernel_h,
            "kernel_w": op.kernel_w,
            "stride": op.stride,
            "padding_h": op.padding,
            "padding_w": op.padding,
        }

    def copies_of(self, x: NodeId) -> NodeId:
        """Each window's elements; 0 where they are padding."""
        return self._t.graph.append(conv.Conv2d, [x, self._copy], TensorType.f32([self._count]), **self._copying)

    def back(self, x: NodeId) -> NodeId:
        """Each element added to the place that it is a copy of."""
        return self._t.graph.append(conv.Conv2dGradInput, [x, self._copy], type_of(self._op.x), **self._copying)

    def _mix(self, x: NodeId, kernel: NodeId, channels: int) -> NodeId:
        batch = self._t.graph.ty(x).num_elements() // (channels * self._out_h * self._out_w)
        sizes = (channels, self._out_h, self._out_w, self._size, 1, 1, 1, 0)  # 1 by 1, stride 1, no padding
        return self._t.graph.conv2d(x, kernel, batch, *sizes)

    def spread(self, x: NodeId) -> NodeId:
        """One number per window, for each of its elements."""
        return self._mix(x, self._t.graph.full(1.0, [self._size]), 1)

    def count_before(self, x: NodeId) -> NodeId:
        """The sum of the elements before each."""
        return self._mix(x, self._square(lambda row, column: column < row), self._size)

    def full(self, value: float) -> NodeId:
        """A constant for every element."""
        return self._t.graph.full(value, [self._count])
