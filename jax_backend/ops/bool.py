"""Lowerings of `ir.ops.bool`. A bool is `bool_` on the device, whatever its store."""

from collections.abc import Callable

import jax.numpy as jnp

import ir
from ir.ops.records import Binary
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, broadcast

FUNCTIONS: dict[type[Binary], Callable[[Array, Array], Array]] = {
    ir.And: jnp.logical_and,
    ir.Or: jnp.logical_or,
    ir.Xor: jnp.logical_xor,
}


@lower(*FUNCTIONS)
def logic(op: Binary, lhs: Array, rhs: Array) -> Array:
    """A logical function of two bools, which broadcast."""
    return FUNCTIONS[type(op)](*broadcast(lhs, rhs))


@lower(ir.Not)
def logical_not(op: ir.Not, x: Array) -> Array:
    """Not x."""
    return jnp.logical_not(x)
