"""Rules of pooling: x (N, C, *spatial). Source: burn-ir `builder.rs`."""

from typing import Protocol

from ir.ops.pool import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool1dBackward,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool2dBackward,
    AdaptiveAvgPool3d,
    AdaptiveAvgPool3dBackward,
    AdaptiveBackward,
    AvgPool1d,
    AvgPool1dBackward,
    AvgPool2d,
    AvgPool2dBackward,
    MaxPool1d,
    MaxPool1dWithIndices,
    MaxPool1dWithIndicesBackward,
    MaxPool2d,
    MaxPool2dWithIndices,
    MaxPool2dWithIndicesBackward,
)
from ir.shapes.formulas import Dims, pool_out, pool_out_undropped, show
from ir.shapes.rules import (
    Given,
    Outputs,
    TensorType,
    one,
    same_dtype,
    shape_rule,
    type_of,
    want_dims,
    want_family,
)
from ir.tensor import TensorIr

SPATIAL = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
AdaptivePool = AdaptiveAvgPool1d | AdaptiveAvgPool2d | AdaptiveAvgPool3d


class Pool(Protocol):
    """What all pools with windows have."""

    @property
    def x(self) -> TensorIr:
        """The tensor to pool."""
        ...

    @property
    def kernel_size(self) -> int | Dims:
        """Window, per axis."""
        ...

    @property
    def stride(self) -> int | Dims:
        """Step between windows, per axis."""
        ...

    @property
    def padding(self) -> int | Dims:
        """Padding at both ends, per axis."""
        ...

    @property
    def ceil_mode(self) -> bool:
        """Whether the number of windows is rounded up."""
        ...


def per_axis(value: int | Dims) -> Dims:
    """A number per axis: the 1-d kinds have a bare one."""
    return (value,) if isinstance(value, int) else value


def pooled(op: Pool, dilation: int | Dims, given: Given) -> Dims:
    """Shape of pooling `op.x`.

    With `ceil_mode` a client of Burn 0.22.0-pre.2 may have declared windows that later releases drop: its count stands.
    """
    kernel = per_axis(op.kernel_size)
    want_dims("x", op.x, ("N", "C", *SPATIAL[len(kernel)]))
    dims, dilations = op.x.shape.dims, per_axis(dilation) if dilation != 1 else (1,) * len(kernel)
    axes = list(zip(dims[2:], kernel, per_axis(op.stride), per_axis(op.padding), dilations, strict=True))
    if op.ceil_mode and given.dims is not None:
        old = (*dims[:2], *(pool_out_undropped(*axis) for axis in axes))
        if given.dims == old:
            return old
    return (*dims[:2], *(pool_out(*axis, ceil=op.ceil_mode) for axis in axes))


@shape_rule(AvgPool1d, AvgPool2d)
def avg_pool(op: AvgPool1d | AvgPool2d, given: Given) -> Outputs:
    """A mean per window."""
    return one(pooled(op, 1, given), op.x.dtype)


@shape_rule(MaxPool1d, MaxPool2d)
def max_pool(op: MaxPool1d | MaxPool2d, given: Given) -> Outputs:
    """A maximum per window."""
    return one(pooled(op, op.dilation, given), op.x.dtype)


@shape_rule(MaxPool1dWithIndices, MaxPool2dWithIndices)
def max_pool_with_indices(op: MaxPool1dWithIndices | MaxPool2dWithIndices, given: Given) -> Outputs:
    """A maximum and its place per window."""
    dims = pooled(op, op.dilation, given)
    return TensorType(dims, op.x.dtype), TensorType(dims, given.index_dtype())


@shape_rule(AvgPool1dBackward, AvgPool2dBackward)
def avg_pool_backward(op: AvgPool1dBackward | AvgPool2dBackward, given: Given) -> Outputs:
    """The type of x; grad has the shape of the pool's output."""
    _check_grad(op.x, op.grad, pooled(op, 1, Given(op.grad.shape.dims)))
    same_dtype(op, "x", "grad")
    return (type_of(op.x),)


@shape_rule(MaxPool1dWithIndicesBackward, MaxPool2dWithIndicesBackward)
def max_pool_backward(op: MaxPool1dWithIndicesBackward | MaxPool2dWithIndicesBackward, given: Given) -> Outputs:
    """The type of x; grad and indices have the shape of the pool's output."""
    wanted = pooled(op, op.dilation, Given(op.grad.shape.dims))
    _check_grad(op.x, op.grad, wanted)
    want_dims("indices", op.indices, wanted, f"grad {show(wanted)}")
    want_family("indices", op.indices, "int")
    same_dtype(op, "x", "grad")
    return (type_of(op.x),)


def _check_grad(x: TensorIr, grad: TensorIr, wanted: Dims) -> None:
    want_dims("grad", grad, wanted, f"the output of the pool of x {show(x.shape.dims)}")


@shape_rule(AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d)
def adaptive_pool(op: AdaptivePool, given: Given) -> Outputs:
    """(N, C, *output_size)."""
    size = per_axis(op.output_size)
    want_dims("x", op.x, ("N", "C", *SPATIAL[len(size)]))
    return one((*op.x.shape.dims[:2], *size), op.x.dtype)


@shape_rule(AdaptiveAvgPool1dBackward, AdaptiveAvgPool2dBackward, AdaptiveAvgPool3dBackward)
def adaptive_pool_backward(op: AdaptiveBackward, given: Given) -> Outputs:
    """The type of x; grad has its batch and channels."""
    axes = SPATIAL[int(op.kind.removeprefix("AdaptiveAvgPool")[0])]
    want_dims("x", op.x, ("N", "C", *axes))
    out = tuple(f"o{axis}" for axis in axes)
    want_dims("grad", op.grad, (*op.x.shape.dims[:2], *out), f"x {show(op.x.shape.dims)}")
    same_dtype(op, "x", "grad")
    return (type_of(op.x),)
