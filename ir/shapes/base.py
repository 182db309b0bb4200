"""Rules of the base kinds that move elements. Source: burn-ir `builder.rs`."""

from ir.dtype import BlockScale, BlockSize, DType, PackedStore, ParamDType, QuantScheme, qfloat
from ir.errors import DTypeError, ShapeError
from ir.ops.base import (
    Cast,
    Cat,
    Expand,
    Flip,
    MaskFill,
    MaskWhere,
    Permute,
    RepeatDim,
    Reshape,
    Slice,
    SliceAssign,
    SwapDims,
    Unfold,
)
from ir.shapes.formulas import (
    Dims,
    axis_in,
    broadcast_dims,
    expand_dims,
    permute_dims,
    reshape_dims,
    show,
    slice_dims,
    swapped_axes,
    unfold_windows,
    with_axis,
)
from ir.shapes.rules import (
    Given,
    Outputs,
    family_of,
    one,
    same_dtype,
    shape_rule,
    type_of,
    want_dims,
    want_family,
)


@shape_rule(Reshape)
def reshape(op: Reshape, given: Given) -> Outputs:
    """The shape asked for, with as many elements."""
    return one(reshape_dims(op.input.shape.dims, given.shape()), op.input.dtype)


@shape_rule(Expand)
def expand(op: Expand, given: Given) -> Outputs:
    """The shape asked for, which the input broadcasts to."""
    return one(expand_dims(op.input.shape.dims, given.shape()), op.input.dtype)


@shape_rule(SwapDims)
def swap_dims(op: SwapDims, given: Given) -> Outputs:
    """Two axes exchanged, in a quantization scheme too."""
    dims = op.input.shape.dims
    axes = swapped_axes(len(dims), axis_in("dim1", op.dim1, len(dims)), axis_in("dim2", op.dim2, len(dims)))
    return one(permute_dims(dims, axes), _permuted_dtype(op.input.dtype, axes, given))


@shape_rule(Permute)
def permute(op: Permute, given: Given) -> Outputs:
    """Axes reordered, in a quantization scheme too."""
    return one(permute_dims(op.input.shape.dims, op.axes), _permuted_dtype(op.input.dtype, op.axes, given))


def _permuted_dtype(dtype: DType, axes: Dims, given: Given) -> DType:
    if not isinstance(dtype, ParamDType) or not dtype.is_quantized:
        return dtype
    if given.dtype is not None and given.dtype.is_quantized:
        return given.dtype  # clients rewrite the scheme themselves, and what they wrote is final
    return qfloat(permute_scheme(dtype.scheme, axes))


def permute_scheme(scheme: QuantScheme, axes: Dims) -> QuantScheme:
    """`scheme` of a tensor whose axes are reordered by `axes`: block sizes move along, and so does the packed axis."""
    rank = len(axes)
    block, store = scheme.block, scheme.store
    if block is not None:
        sizes = (1,) * (rank - block.size.len) + block.size.dims
        moved = [sizes[axis] for axis in axes]
        first, second, third, fourth, fifth = (*moved, *(1,) * (5 - rank))
        block = BlockScale(BlockSize((first, second, third, fourth, fifth), rank), block.dtype)
    if isinstance(store, PackedStore):  # counted from the innermost axis
        store = PackedStore(**{store.variant: rank - 1 - axes.index(rank - 1 - store.payload)})
    return QuantScheme(scheme.value, store, scheme.mode, scheme.tensor, block)


@shape_rule(Flip)
def flip(op: Flip, given: Given) -> Outputs:
    """The type of the input."""
    for axis in op.axes:
        axis_in("axes", axis, len(op.input.shape.dims))
    return (type_of(op.input),)


@shape_rule(Unfold)
def unfold(op: Unfold, given: Given) -> Outputs:
    """The axis becomes the number of windows, their size is appended."""
    dims = op.input.shape.dims
    axis = axis_in("dim", op.dim, len(dims))
    return one((*with_axis(dims, axis, unfold_windows(dims[axis], op.size, op.step)), op.size), op.input.dtype)


@shape_rule(Slice)
def slice_(op: Slice, given: Given) -> Outputs:
    """What the ranges select."""
    return one(slice_dims(op.tensor.shape.dims, op.ranges), op.tensor.dtype)


@shape_rule(SliceAssign)
def slice_assign(op: SliceAssign, given: Given) -> Outputs:
    """The type of the tensor; the value has the shape of the slice."""
    dims = op.tensor.shape.dims
    want_dims("value", op.value, slice_dims(dims, op.ranges), f"the slice of tensor {show(dims)}")
    same_dtype(op, "tensor", "value")
    return (type_of(op.tensor),)


@shape_rule(MaskWhere)
def mask_where(op: MaskWhere, given: Given) -> Outputs:
    """The three broadcast; mask is bool, value has the dtype of the tensor."""
    want_family("mask", op.mask, "bool")
    dims = broadcast_dims("mask", op.tensor.shape.dims, op.mask.shape.dims)
    return one(broadcast_dims("value", dims, op.value.shape.dims), same_dtype(op, "tensor", "value"))


@shape_rule(MaskFill)
def mask_fill(op: MaskFill, given: Given) -> Outputs:
    """Both broadcast; mask is bool."""
    want_family("mask", op.mask, "bool")
    return one(broadcast_dims("mask", op.tensor.shape.dims, op.mask.shape.dims), op.tensor.dtype)


@shape_rule(RepeatDim)
def repeat_dim(op: RepeatDim, given: Given) -> Outputs:
    """The axis grows `times` times."""
    dims = op.tensor.shape.dims
    axis = axis_in("dim", op.dim, len(dims))
    return one(with_axis(dims, axis, dims[axis] * op.times), op.tensor.dtype)


@shape_rule(Cat)
def cat(op: Cat, given: Given) -> Outputs:
    """Sizes along `dim` add up; everything else agrees."""
    if not op.tensors:
        raise ShapeError("tensors: expected at least one tensor, got none")
    first = op.tensors[0]
    dims = first.shape.dims
    axis = axis_in("dim", op.dim, len(dims))
    pattern = [size if n != axis else "*" for n, size in enumerate(dims)]
    for n, tensor in enumerate(op.tensors[1:], 1):
        want_dims(f"tensors.{n}", tensor, pattern, f"tensors.0 {show(dims)} along dim {axis}")
        if tensor.dtype != first.dtype:
            raise DTypeError(
                f"tensors.{n}: expected dtype {first.dtype.short}, that of tensors.0, got {tensor.dtype.short}"
            )
    return one(with_axis(dims, axis, sum(t.shape.dims[axis] for t in op.tensors)), first.dtype)


@shape_rule(Cast)
def cast(op: Cast, given: Given) -> Outputs:
    """The dtype asked for, within the family of the input."""
    if given.dtype is None:
        raise DTypeError("out: expected a dtype to cast to, got none; give `out_dtype`")
    if (family := family_of(op.input.dtype)) != family_of(given.dtype):
        raise DTypeError(
            f"out: expected a dtype of {family}, as the input {op.input.dtype.short}, got {given.dtype.short}; "
            "IntoInt, IntoFloat and NotEqualElem lead to other families"
        )
    return one(op.input.shape.dims, given.dtype)
