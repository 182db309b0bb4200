"""What the lowerings of Meganeura's kinds share.

In `graph.rs` a tensor is a flat buffer with a declared type: a node's result has the elements that its formula gives,
in the shape that the node declares.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from msgspec.structs import replace

from ir.errors import ShapeError
from ir.op import Op, map_tensors
from ir.tensor import TensorId, TensorIr
from jax_backend.ops._shared import Array, const, dot_precision, out_dtype, widen_half

Dims = tuple[int, ...]


def declared(function: Callable[..., Array]) -> Callable[..., Array]:
    """Run a lowering on widened halves and give its result the declared shape and dtype.

    The lowering is traced once for equal operations; where it occurs again, what was traced is put in its place. A
    decoder of 30 layers with its gradients, 1,365 operations, takes 0.4 s to trace instead of 1.9.

    Raises:
        ShapeError: the result has another number of elements.
    """

    @wraps(function)
    def lowered(op: Any, *operands: Array | None) -> Array:
        nameless = map_tensors(op, lambda tensor: replace(tensor, id=TensorId(0)))
        return _traced_once(function, nameless, dot_precision(op.out.dtype))(*operands)

    return lowered


@lru_cache(maxsize=4096)
def _traced_once(function: Callable[..., Array], op: Any, precision: lax.Precision) -> Callable[..., Array]:
    """The lowering as a function of arrays; `op` and the precision in force decide it. Inlined, it leaves no call."""

    def body(*operands: Array | None) -> Array:
        result = function(op, *(None if x is None else widen_half(x) for x in operands))
        wanted = op.out.shape.dims
        if result.size != prod(wanted):
            raise ShapeError(f"{op.kind}.out: declared shape {wanted}, computed {tuple(result.shape)}")
        return result.reshape(wanted).astype(out_dtype(op.out))

    return jax.jit(body, inline=True)


def viewed(x: Array, shape: Dims, field: str) -> Array:
    """The elements of `x` in another shape; one axis may be -1, for as many as there are.

    Raises:
        ShapeError: their number does not fit; names `field`.
    """
    known = prod(n for n in shape if n >= 0)
    count, rest = divmod(x.size, known) if known else (0, x.size)
    if rest == 0 and (-1 in shape or x.size == known):
        return x.reshape(tuple(count if n < 0 else n for n in shape))
    axes = ", ".join("n" if n < 0 else str(n) for n in shape)
    raise ShapeError(f"{field}: expected the elements of ({axes}), got {x.size} in shape {tuple(x.shape)}")


def two_dims(x: Array, field: str) -> Array:
    """`x`, which must be two-dimensional.

    Raises:
        ShapeError: it is not; names `field`.
    """
    if x.ndim != 2:
        raise ShapeError(f"{field}: expected two axes, got shape {tuple(x.shape)}")
    return x


def product(lhs: Array, rhs: Array, lhs_axis: int, rhs_axis: int, out: TensorIr, field: str) -> Array:
    """Matrix product over one axis of each.

    Raises:
        ShapeError: the axes differ in length, or an operand is no matrix; names `field`.
    """
    lhs, rhs = two_dims(lhs, field), two_dims(rhs, field)
    if lhs.shape[lhs_axis] != rhs.shape[rhs_axis]:
        raise ShapeError(
            f"{field}: expected {lhs.shape[lhs_axis]} along axis {rhs_axis} of the second operand for a first of "
            f"{tuple(lhs.shape)}, got {tuple(rhs.shape)}"
        )
    axes = (((lhs_axis,), (rhs_axis,)), ((), ()))
    return lax.dot_general(lhs, rhs, axes, precision=dot_precision(out.dtype))


def dsilu(x: Array) -> Array:
    """Derivative of silu: s + x s (1 - s), s the logistic function of x."""
    s = lax.logistic(x)
    return s + x * s * (const(1, x) - s)


def position(offset: Array) -> Array:
    """Element 0 of a U32 buffer."""
    return lax.squeeze(lax.slice(offset.reshape(-1), (0,), (1,)), (0,)).astype(jnp.int32)


def rotated(op: Op, x: Array, head_dim: int, theta: float, offset: int | Array, direction: float = 1.0) -> Array:
    """Each pair (d, d + head_dim/2) of each head turned by (row + offset) theta^(-2d / head_dim).

    Angles are float32 whatever x is: a position in bfloat16 is off by whole turns.

    Raises:
        ShapeError: head_dim is odd or does not divide the columns.
    """
    rows, columns = two_dims(x, f"{op.kind}.x").shape
    if head_dim == 0 or head_dim % 2 or columns % head_dim:
        raise ShapeError(f"{op.kind}.head_dim: expected an even divisor of {columns} columns, got {head_dim}")
    frequencies = np.power(float(theta), -np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    places = (lax.iota(jnp.int32, rows) + jnp.asarray(offset, jnp.int32)).astype(jnp.float32)
    angles = places[:, None, None] * jnp.asarray(frequencies, jnp.float32)[None, None, :]
    cosine, sine = jnp.cos(angles).astype(x.dtype), (jnp.sin(angles) * jnp.float32(direction)).astype(x.dtype)
    heads = x.reshape(rows, columns // head_dim, 2, head_dim // 2)
    left, right = heads[:, :, 0], heads[:, :, 1]
    return jnp.stack([left * cosine - right * sine, left * sine + right * cosine], axis=2)
