"""Rules of numeric kinds: padding, random numbers, reductions, sorts. Source: burn-ir `builder.rs`."""

from ir.dtype import F32, I32
from ir.errors import ShapeError
from ir.ops.numeric import Full, IntRandom, Pad, PadBorder, Random
from ir.ops.reduce import (
    ArgMax,
    ArgMin,
    Max,
    MaxAbs,
    MaxAbsDim,
    MaxDim,
    MaxDimWithIndices,
    Mean,
    MeanDim,
    Min,
    MinDim,
    MinDimWithIndices,
    Prod,
    Sum,
    SumDims,
    WithIndices,
)
from ir.ops.sort import ArgSort, ArgTopK, Sort, SortWithIndices, TopK, TopKWithIndices
from ir.shapes.formulas import Dims, axis_in, show, with_axis
from ir.shapes.rules import Given, Outputs, TensorType, one, shape_rule, type_of
from ir.tensor import TensorIr


@shape_rule(Full)
def full(op: Full, given: Given) -> Outputs:
    """As asked for; f32 if no dtype is."""
    return one(given.shape(), given.dtype or F32)


@shape_rule(Random)
def random(op: Random, given: Given) -> Outputs:
    """As asked for; f32 if no dtype is. The dtype decides what is drawn, whatever the kind is called."""
    return one(given.shape(), given.number_dtype(F32))


@shape_rule(IntRandom)
def int_random(op: IntRandom, given: Given) -> Outputs:
    """As asked for; i32 if no dtype is."""
    return one(given.shape(), given.number_dtype(I32))


@shape_rule(Pad)
def pad(op: Pad, given: Given) -> Outputs:
    """Each axis grows by its pair; what is mirrored or repeated has to be there."""
    dims = op.input.shape.dims
    if len(op.padding) != len(dims):
        raise ShapeError(f"padding: expected {len(dims)} pairs for input {show(dims)}, got {len(op.padding)}")
    for size, pair in zip(dims, op.padding, strict=True):
        if op.mode is PadBorder.Reflect and max(pair) >= size:
            raise ShapeError(
                f"padding: expected less than {size} on an axis of {size} that is mirrored, got {max(pair)}"
            )
        if op.mode is PadBorder.Edge and size == 0 and any(pair):
            raise ShapeError("padding: expected none on an empty axis whose edge would be repeated")
    return one(tuple(b + size + a for size, (b, a) in zip(dims, op.padding, strict=True)), op.input.dtype)


@shape_rule(Sum, Mean, Prod)
def reduce(op: Sum | Mean | Prod, given: Given) -> Outputs:
    """One element."""
    if isinstance(op, Mean) and op.input.dtype.is_int and 0 in op.input.shape.dims:
        raise ShapeError(f"input: expected at least one element for a mean of ints, got {show(op.input.shape.dims)}")
    return one((1,), op.input.dtype)


@shape_rule(Max, Min, MaxAbs)
def extreme(op: Max | Min | MaxAbs, given: Given) -> Outputs:
    """One element, of at least one."""
    if 0 in op.input.shape.dims:
        raise ShapeError(f"input: expected at least one element, got {show(op.input.shape.dims)}")
    return one((1,), op.input.dtype)


@shape_rule(SumDims)
def sum_dims(op: SumDims, given: Given) -> Outputs:
    """Each of the axes becomes 1."""
    dims = op.input.shape.dims
    for axis in op.axes:
        dims = with_axis(dims, axis_in("axes", axis, len(dims)), 1)
    return one(dims, op.input.dtype)


def _extreme_dims(name: str, tensor: TensorIr, axis: int) -> Dims:
    """The shape of `tensor` with `axis` reduced to 1; some element has to be there."""
    dims = tensor.shape.dims
    out = with_axis(dims, axis_in(name, axis, len(dims)), 1)
    if dims[axis] == 0:
        raise ShapeError(f"{name}: expected at least one element along axis {axis}, got {show(dims)}")
    return out


@shape_rule(MeanDim)
def mean_dim(op: MeanDim, given: Given) -> Outputs:
    """The axis becomes 1; ints cannot be divided by none."""
    dims = op.input.shape.dims
    axis = axis_in("axis", op.axis, len(dims))
    out = _extreme_dims("axis", op.input, axis) if op.input.dtype.is_int else with_axis(dims, axis, 1)
    return one(out, op.input.dtype)


@shape_rule(MaxDim, MinDim, MaxAbsDim)
def extreme_dim(op: MaxDim | MinDim | MaxAbsDim, given: Given) -> Outputs:
    """The axis becomes 1."""
    return one(_extreme_dims("axis", op.input, op.axis), op.input.dtype)


@shape_rule(ArgMax, ArgMin)
def arg_extreme(op: ArgMax | ArgMin, given: Given) -> Outputs:
    """The axis becomes 1; ints."""
    return one(_extreme_dims("axis", op.input, op.axis), given.index_dtype())


@shape_rule(MaxDimWithIndices, MinDimWithIndices)
def extreme_with_indices(op: WithIndices, given: Given) -> Outputs:
    """The axis becomes 1; values, then ints."""
    dims = _extreme_dims("dim", op.tensor, op.dim)
    return TensorType(dims, op.tensor.dtype), TensorType(dims, given.index_dtype())


@shape_rule(Sort)
def sort(op: Sort, given: Given) -> Outputs:
    """The type of the input."""
    axis_in("dim", op.dim, len(op.input.shape.dims))
    return (type_of(op.input),)


@shape_rule(ArgSort)
def arg_sort(op: ArgSort, given: Given) -> Outputs:
    """The shape of the input; ints."""
    axis_in("dim", op.dim, len(op.input.shape.dims))
    return one(op.input.shape.dims, given.index_dtype())


@shape_rule(SortWithIndices)
def sort_with_indices(op: SortWithIndices, given: Given) -> Outputs:
    """The type of the input, then ints."""
    axis_in("dim", op.dim, len(op.input.shape.dims))
    return type_of(op.input), TensorType(op.input.shape.dims, given.index_dtype())


def _top_dims(name: str, tensor: TensorIr, axis: int, count_name: str, count: int) -> Dims:
    """The shape of `tensor` with `axis` cut to its `count` largest."""
    dims = tensor.shape.dims
    size = dims[axis_in(name, axis, len(dims))]
    if count > size:
        raise ShapeError(f"{count_name}: expected at most {size}, the size of axis {axis} of {show(dims)}, got {count}")
    return with_axis(dims, axis, count)


@shape_rule(TopK)
def top_k(op: TopK, given: Given) -> Outputs:
    """The axis becomes k."""
    return one(_top_dims("axis", op.input, op.axis, "accumulator_len", op.accumulator_len), op.input.dtype)


@shape_rule(ArgTopK)
def arg_top_k(op: ArgTopK, given: Given) -> Outputs:
    """The axis becomes k; ints."""
    return one(_top_dims("axis", op.input, op.axis, "accumulator_len", op.accumulator_len), given.index_dtype())


@shape_rule(TopKWithIndices)
def top_k_with_indices(op: TopKWithIndices, given: Given) -> Outputs:
    """The axis becomes k; values, then ints."""
    dims = _top_dims("dim", op.tensor, op.dim, "k", op.k)
    return TensorType(dims, op.tensor.dtype), TensorType(dims, given.index_dtype())
