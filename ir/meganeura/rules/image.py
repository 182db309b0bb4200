"""Rules of norms and of images."""

from typing import Any

from ir.errors import ShapeError
from ir.meganeura.ops import conv, norm
from ir.meganeura.rules.checks import batch_of, count, elements, equal, f32, fail, like, rank, rule
from ir.meganeura.types import TensorType


@rule(norm.RmsNorm)
def rms_norm(op: norm.RmsNorm) -> TensorType:
    """The type of x."""
    x = rank(op, "x", 2, "rms_norm requires 2D input")
    w = rank(op, "weight", 1, "rms_norm weight must be 1D")
    equal(op, "weight", x[1], w[0], "rms_norm weight size must match last dim")
    return like(op.x)


@rule(norm.LayerNorm)
def layer_norm(op: norm.LayerNorm) -> TensorType:
    """The type of x."""
    x = rank(op, "x", 2, "layer_norm requires 2D input")
    w = rank(op, "weight", 1, "layer_norm weight must be 1D")
    b = rank(op, "bias", 1, "layer_norm bias must be 1D")
    equal(op, "weight", x[1], w[0], "layer_norm weight size must match last dim")
    equal(op, "bias", x[1], b[0], "layer_norm bias size must match last dim")
    return like(op.x)


@rule(norm.RmsNormGradX, norm.LayerNormGradX, norm.RmsNormGradW, norm.LayerNormGradWB)
def norm_grad(op: norm.NormGrad) -> TensorType | None:
    """The type of x, or one element per column; a hand-made `LayerNormGradWB` may declare twice as many."""
    x = rank(op, "x", 2, "a norm requires 2D input")
    elements(op, "w", x[1], "columns of x")
    elements(op, "dy", x[0] * x[1], "as x")
    if isinstance(op, norm.LayerNormGradWB) and count(op.out) == 2 * x[1]:
        return None
    return like(op.x) if isinstance(op, norm.RmsNormGradX | norm.LayerNormGradX) else f32(x[1])


def _check_norm_groups(op: Any, x: str) -> None:
    if op.num_groups == 0 or op.channels % op.num_groups:
        fail(op, "num_groups", f"expected a divisor of channels={op.channels}, got {op.num_groups}")
    batch_of(op, x, op.channels * op.spatial, "channels spatial")


@rule(norm.GroupNorm, norm.GroupNormSilu)
def group_norm(op: norm.GroupNormShape) -> TensorType:
    """The type of x."""
    _check_norm_groups(op, "x")
    elements(op, "weight", op.channels, "channels")
    elements(op, "bias", op.channels, "channels")
    return like(op.x)


@rule(norm.GroupNormGradInput)
def group_norm_grad_input(op: norm.GroupNormGradInput) -> TensorType:
    """As many elements as x."""
    _check_norm_groups(op, "x")
    elements(op, "grad_out", count(op.x), "as x")
    elements(op, "weight", op.channels, "channels")
    return f32(count(op.x))


@rule(norm.GroupNormGradWeightBias)
def group_norm_grad_weight_bias(op: norm.GroupNormGradWeightBias) -> TensorType:
    """Two elements per channel."""
    _check_norm_groups(op, "x")
    elements(op, "grad_out", count(op.x), "as x")
    return f32(2 * op.channels)


def window_count(kind: str, axis: str, size: int, kernel: int, stride: int, padding: int) -> int:
    """How many windows fit along one axis, all in elements: (size + 2 padding - kernel) // stride + 1.

    Raises:
        ShapeError: the window is larger than the padded axis, or a size is 0.
    """
    if stride == 0:
        raise ShapeError(f"{kind}.stride: expected at least 1, got 0")
    if kernel == 0 or size + 2 * padding < kernel:
        raise ShapeError(f"{kind}.kernel_{axis}: expected 1 to {size + 2 * padding}, the padded size, got {kernel}")
    return (size + 2 * padding - kernel) // stride + 1


def _conv_sizes(op: Any) -> tuple[int, int, int]:
    """Elements of one image that goes in, of the kernel, and of one image that comes out."""
    out_h = window_count(op.kind, "h", op.in_h, op.kernel_h, op.stride, op.padding_h)
    out_w = window_count(op.kind, "w", op.in_w, op.kernel_w, op.stride, op.padding_w)
    kernel = op.out_channels * op.in_channels * op.kernel_h * op.kernel_w
    return op.in_channels * op.in_h * op.in_w, kernel, op.out_channels * out_h * out_w


@rule(conv.Conv2d)
def conv2d(op: conv.Conv2d) -> TensorType:
    """Flat (N, out_channels, out_h, out_w)."""
    image, kernel, made = _conv_sizes(op)
    elements(op, "kernel", kernel, "out_channels in_channels kernel_h kernel_w")
    return f32(batch_of(op, "x", image, "in_channels in_h in_w") * made)


@rule(conv.Conv2dGradInput)
def conv2d_grad_input(op: conv.Conv2dGradInput) -> TensorType:
    """Flat (N, in_channels, in_h, in_w)."""
    image, kernel, made = _conv_sizes(op)
    elements(op, "kernel", kernel, "out_channels in_channels kernel_h kernel_w")
    return f32(batch_of(op, "grad_out", made, "out_channels out_h out_w") * image)


@rule(conv.Conv2dGradWeight)
def conv2d_grad_weight(op: conv.Conv2dGradWeight) -> TensorType:
    """As the kernel."""
    image, kernel, made = _conv_sizes(op)
    elements(op, "grad_out", batch_of(op, "x", image, "in_channels in_h in_w") * made, "out_channels out_h out_w")
    return f32(kernel)


@rule(conv.MaxPool2d)
def max_pool_2d(op: conv.MaxPool2d) -> TensorType:
    """Flat (N, channels, out_h, out_w)."""
    out_h = window_count(op.kind, "h", op.in_h, op.kernel_h, op.stride, op.padding)
    out_w = window_count(op.kind, "w", op.in_w, op.kernel_w, op.stride, op.padding)
    batch = batch_of(op, "x", op.channels * op.in_h * op.in_w, "channels in_h in_w")
    return f32(batch * op.channels * out_h * out_w)


@rule(conv.GlobalAvgPool)
def global_avg_pool(op: conv.GlobalAvgPool) -> TensorType:
    """(N, channels)."""
    return f32(batch_of(op, "x", op.channels * op.spatial, "channels spatial"), op.channels)


@rule(conv.GlobalAvgPoolGrad)
def global_avg_pool_grad(op: conv.GlobalAvgPoolGrad) -> None:
    """What is declared: Meganeura 0.2 misuses the kind as the gradient of a max pool, of any length."""
    if op.spatial == 0 or count(op.grad_out) == 0:
        fail(op, "spatial", f"expected at least 1 element and spatial > 0, got spatial={op.spatial}")


@rule(conv.Concat)
def concat(op: conv.Concat) -> TensorType:
    """Flat (N, channels_a + channels_b, spatial)."""
    batch = batch_of(op, "a", op.channels_a * op.spatial, "channels_a spatial")
    elements(op, "b", batch * op.channels_b * op.spatial, "N channels_b spatial")
    return f32(batch * (op.channels_a + op.channels_b) * op.spatial)


@rule(conv.SplitA, conv.SplitB)
def split(op: conv.SplitShape) -> TensorType:
    """Flat (N, channels_a or channels_b, spatial)."""
    batch = batch_of(op, "x", (op.channels_a + op.channels_b) * op.spatial, "channels_a + channels_b, spatial")
    return f32(batch * (op.channels_a if isinstance(op, conv.SplitA) else op.channels_b) * op.spatial)


@rule(conv.Upsample2x)
def upsample_2x(op: conv.Upsample2x) -> TensorType:
    """Flat (N, channels, 2 in_h, 2 in_w)."""
    image = op.channels * op.in_h * op.in_w
    return f32(batch_of(op, "x", image, "channels in_h in_w") * image * 4)


@rule(conv.Upsample2xGrad)
def upsample_2x_grad(op: conv.Upsample2xGrad) -> TensorType:
    """Flat (N, channels, in_h, in_w)."""
    image = op.channels * op.in_h * op.in_w
    return f32(batch_of(op, "grad_out", 4 * image, "channels, 2 in_h, 2 in_w") * image)
