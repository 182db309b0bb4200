"""Linear layers and embeddings."""

import jax.numpy as jnp
from jax import lax

import ir
from ir.tensor import TensorIr
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, dot_precision, is_half, out_dtype, widen_half

Axes = tuple[int, ...]


@lower(ir.Linear)
def linear(op: ir.Linear, x: Array, weight: Array, bias: Array | None) -> Array:
    """Product over the innermost axis of x, which may have any rank from 1 on."""
    y = _contract(x, weight, (x.ndim - 1,), (0,), op.out)
    if bias is not None:
        y = y + widen_half(bias).reshape((1,) * (y.ndim - 1) + bias.shape)
    return y.astype(out_dtype(op.out))


@lower(ir.LinearXBackward)
def linear_x_backward(op: ir.LinearXBackward, weight: Array, output_grad: Array) -> Array:
    """Product with the transposed weight."""
    return _contract(output_grad, weight, (output_grad.ndim - 1,), (1,), op.out).astype(out_dtype(op.out))


@lower(ir.LinearWeightBackward)
def linear_weight_backward(op: ir.LinearWeightBackward, x: Array, output_grad: Array) -> Array:
    """Sum over all but the innermost axes."""
    outer = tuple(range(x.ndim - 1))
    return _contract(x, output_grad, outer, outer, op.out).astype(out_dtype(op.out))


@lower(ir.LinearBiasBackward)
def linear_bias_backward(op: ir.LinearBiasBackward, output_grad: Array) -> Array:
    """Sum over all but the innermost axis."""
    return jnp.sum(widen_half(output_grad), axis=tuple(range(output_grad.ndim - 1))).astype(out_dtype(op.out))


def _contract(lhs: Array, rhs: Array, lhs_axes: Axes, rhs_axes: Axes, out: TensorIr) -> Array:
    """Sum of products over paired axes; of halves in float32, not yet rounded."""
    return lax.dot_general(
        lhs,
        rhs,
        ((lhs_axes, rhs_axes), ((), ())),
        precision=dot_precision(out.dtype),
        preferred_element_type=jnp.float32 if is_half(lhs) else None,
    )


@lower(ir.Embedding)
def embedding(op: ir.Embedding, weights: Array, indices: Array) -> Array:
    """Rows by index; an index out of range reads the nearest row, as all gathers here do."""
    return jnp.take(weights, indices.astype(jnp.int64), axis=0, mode="clip")


@lower(ir.EmbeddingBackward)
def embedding_backward(op: ir.EmbeddingBackward, weights: Array, out_grad: Array, indices: Array) -> Array:
    """Rows summed at their index; one out of range, negative ones included, is left out."""
    grad = widen_half(out_grad)
    rows = weights.shape[0]
    places = indices.astype(jnp.int64)
    places = jnp.where(places < 0, rows, places)  # jax would count a negative index from the end
    return jnp.zeros(weights.shape, grad.dtype).at[places].add(grad, mode="drop").astype(out_dtype(op.out))
