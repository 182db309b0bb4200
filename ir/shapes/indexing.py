"""Rules of the kinds that take indices: any int dtype. Source: burn-ir `builder.rs`."""

from ir.errors import ShapeError
from ir.ops.indexing import Gather, GatherNd, Scatter, ScatterNd, Select, SelectAssign
from ir.shapes.formulas import Dims, axis_in, show, with_axis
from ir.shapes.rules import Given, Outputs, one, same_dtype, shape_rule, type_of, want_dims, want_family
from ir.tensor import TensorIr


@shape_rule(Select)
def select(op: Select, given: Given) -> Outputs:
    """The axis becomes the number of indices."""
    dims = op.tensor.shape.dims
    axis = axis_in("dim", op.dim, len(dims))
    want_family("indices", op.indices, "int")
    want_dims("indices", op.indices, ("m",))
    return one(with_axis(dims, axis, op.indices.shape.dims[0]), op.tensor.dtype)


@shape_rule(SelectAssign)
def select_assign(op: SelectAssign, given: Given) -> Outputs:
    """The type of the tensor; the value has one slice per index."""
    dims = op.tensor.shape.dims
    axis = axis_in("dim", op.dim, len(dims))
    want_family("indices", op.indices, "int")
    want_dims("indices", op.indices, ("m",))
    (count,) = op.indices.shape.dims
    want_dims("value", op.value, with_axis(dims, axis, count), f"{count} indices on tensor {show(dims)}")
    same_dtype(op, "tensor", "value")
    return (type_of(op.tensor),)


@shape_rule(Gather)
def gather(op: Gather, given: Given) -> Outputs:
    """The shape of the indices, which agrees with the tensor off the axis."""
    _along(op.tensor, op.dim, op.indices)
    return one(op.indices.shape.dims, op.tensor.dtype)


@shape_rule(Scatter)
def scatter(op: Scatter, given: Given) -> Outputs:
    """The type of the tensor; indices and value have one shape."""
    _along(op.tensor, op.dim, op.indices)
    want_dims("value", op.value, op.indices.shape.dims, f"indices {show(op.indices.shape.dims)}")
    same_dtype(op, "tensor", "value")
    return (type_of(op.tensor),)


def _along(tensor: TensorIr, dim: int, indices: TensorIr) -> None:
    dims = tensor.shape.dims
    axis = axis_in("dim", dim, len(dims))
    want_family("indices", indices, "int")
    pattern = [size if n != axis else "m" for n, size in enumerate(dims)]
    want_dims("indices", indices, pattern, f"tensor {show(dims)} along dim {axis}")


@shape_rule(GatherNd)
def gather_nd(op: GatherNd, given: Given) -> Outputs:
    """The batch axes of the indices, then those of the blocks."""
    return one(_blocks(op.data, op.indices), op.data.dtype)


@shape_rule(ScatterNd)
def scatter_nd(op: ScatterNd, given: Given) -> Outputs:
    """The type of the data; a block of values per index row."""
    blocks = _blocks(op.data, op.indices)
    context = f"indices {show(op.indices.shape.dims)} on data {show(op.data.shape.dims)}"
    want_dims("values", op.values, blocks, context)
    same_dtype(op, "data", "values")
    return (type_of(op.data),)


def _blocks(data: TensorIr, indices: TensorIr) -> Dims:
    """Shape of the blocks of `data` (d0, ..) at `indices` (B.., k): (B.., *data.shape[k:])."""
    want_family("indices", indices, "int")
    rows, dims = indices.shape.dims, data.shape.dims
    if not rows or rows[-1] > len(dims):
        raise ShapeError(
            f"indices: expected shape (.., k) with k <= {len(dims)} for data {show(dims)}, got {show(rows)}"
        )
    return rows[:-1] + dims[rows[-1] :]
