"""Rules of linear layers and embeddings. Source: burn-ir `builder.rs`."""

from ir.errors import ShapeError
from ir.ops.linear import (
    Embedding,
    EmbeddingBackward,
    Linear,
    LinearBiasBackward,
    LinearWeightBackward,
    LinearXBackward,
)
from ir.shapes.formulas import Dims, show
from ir.shapes.rules import Given, Outputs, one, same_dtype, shape_rule, type_of, want_dims, want_family
from ir.tensor import TensorIr


def _rows(name: str, tensor: TensorIr) -> Dims:
    """Shape of a tensor of rows (.., d): rank 1 or more."""
    if not tensor.shape.dims:
        raise ShapeError(f"{name}: expected shape (.., d), got ()")
    return tensor.shape.dims


@shape_rule(Linear)
def linear(op: Linear, given: Given) -> Outputs:
    """`x` (.., in) · weight (in, out) + bias (out,) -> (.., out)."""
    dims = _rows("x", op.x)
    want_dims("weight", op.weight, (dims[-1], "out"), f"x {show(dims)}")
    size = op.weight.shape.dims[1]
    want_dims("bias", op.bias, (size,), f"weight {show(op.weight.shape.dims)}")
    return one((*dims[:-1], size), same_dtype(op, "x", "weight", "bias"))


@shape_rule(LinearXBackward)
def linear_x_backward(op: LinearXBackward, given: Given) -> Outputs:
    """output_grad (.., out) · weight (in, out) -> (.., in)."""
    dims = _rows("output_grad", op.output_grad)
    want_dims("weight", op.weight, ("in", dims[-1]), f"output_grad {show(dims)}")
    same_dtype(op, "output_grad", "weight")
    return one((*dims[:-1], op.weight.shape.dims[0]), op.output_grad.dtype)


@shape_rule(LinearWeightBackward)
def linear_weight_backward(op: LinearWeightBackward, given: Given) -> Outputs:
    """`x` (.., in) · output_grad (.., out) -> (in, out)."""
    dims = _rows("x", op.x)
    want_dims("output_grad", op.output_grad, (*dims[:-1], "out"), f"x {show(dims)}")
    same_dtype(op, "x", "output_grad")
    return one((dims[-1], op.output_grad.shape.dims[-1]), op.output_grad.dtype)


@shape_rule(LinearBiasBackward)
def linear_bias_backward(op: LinearBiasBackward, given: Given) -> Outputs:
    """output_grad (.., out) -> (out,)."""
    return one(_rows("output_grad", op.output_grad)[-1:], op.output_grad.dtype)


@shape_rule(Embedding)
def embedding(op: Embedding, given: Given) -> Outputs:
    """`weights` (n, d) · indices (b, s) -> (b, s, d)."""
    want_dims("weights", op.weights, ("n", "d"))
    want_dims("indices", op.indices, ("b", "s"))
    want_family("indices", op.indices, "int")
    return one((*op.indices.shape.dims, op.weights.shape.dims[1]), op.weights.dtype)


@shape_rule(EmbeddingBackward)
def embedding_backward(op: EmbeddingBackward, given: Given) -> Outputs:
    """The type of the weights; out_grad (b, s, d)."""
    want_dims("weights", op.weights, ("n", "d"))
    want_dims("indices", op.indices, ("b", "s"))
    want_family("indices", op.indices, "int")
    rows = (*op.indices.shape.dims, op.weights.shape.dims[1])
    want_dims("out_grad", op.out_grad, rows, f"indices {show(op.indices.shape.dims)}")
    same_dtype(op, "weights", "out_grad")
    return (type_of(op.weights),)
