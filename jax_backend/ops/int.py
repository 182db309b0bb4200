"""Lowerings of `ir.ops.int`: two's complement in every width."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

import ir
from ir.ops.records import Binary, WithScalar
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, broadcast, const


def _amount(n: Array) -> Array:
    """A shift amount modulo the width: beyond it XLA gives 0, Burn starts again."""
    return n & const(jnp.iinfo(n.dtype).bits - 1, n)


def left_shift(x: Array, n: Array) -> Array:
    """`x << n`."""
    return lax.shift_left(x, _amount(n))


def right_shift(x: Array, n: Array) -> Array:
    """`x >> n`: arithmetic on signed ints, logical on unsigned ones."""
    signed = jnp.issubdtype(x.dtype, jnp.signedinteger)
    return (lax.shift_right_arithmetic if signed else lax.shift_right_logical)(x, _amount(n))


FUNCTIONS: dict[type[Binary | WithScalar], Callable[[Array, Array], Array]] = {
    ir.BitwiseAnd: lax.bitwise_and,
    ir.BitwiseOr: lax.bitwise_or,
    ir.BitwiseXor: lax.bitwise_xor,
    ir.BitwiseLeftShift: left_shift,
    ir.BitwiseRightShift: right_shift,
    ir.BitwiseAndScalar: lax.bitwise_and,
    ir.BitwiseOrScalar: lax.bitwise_or,
    ir.BitwiseXorScalar: lax.bitwise_xor,
    ir.BitwiseLeftShiftScalar: left_shift,
    ir.BitwiseRightShiftScalar: right_shift,
}


@lower(*FUNCTIONS)
def bitwise(op: Binary | WithScalar, lhs: Array, rhs: Array) -> Array:
    """A bitwise function of two ints, which broadcast; `rhs` may be a scalar."""
    return FUNCTIONS[type(op)](*broadcast(lhs, rhs))


@lower(ir.BitwiseNot)
def bitwise_not(op: ir.BitwiseNot, x: Array) -> Array:
    """~x."""
    return lax.bitwise_not(x)
