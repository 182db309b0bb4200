"""Lowerings of `ir.meganeura.ops.leaf`."""

from math import prod
from typing import Final

import jax.numpy as jnp
import numpy as np

from ir.errors import ShapeError
from ir.meganeura.ops.leaf import Constant, Identity, Input, Nop, Parameter
from ir.op import Op
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, out_dtype
from jax_backend.ops.meganeura._shared import declared

NO_PROGRAM: Final[frozenset[type[Op]]] = frozenset({Parameter, Input, Nop})
"""Kinds without a lowering: a program takes the first two as arguments, and a deleted node is in none."""


@lower(Constant)
def constant(op: Constant) -> Array:
    """A number everywhere is one scalar broadcast; as a literal it would be stored and compiled in full.

    Raises:
        ShapeError: there are neither one nor as many elements as the shape says.
    """
    elements = np.frombuffer(op.data, np.dtype("<f4"))
    if op.is_uniform:
        return jnp.full(op.out.shape.dims, elements[0], out_dtype(op.out))
    if elements.size != prod(op.out.shape.dims):
        raise ShapeError(f"Constant.data: expected {prod(op.out.shape.dims)} elements, got {elements.size}")
    return jnp.asarray(elements.reshape(op.out.shape.dims), out_dtype(op.out))


@lower(Identity)
@declared
def identity(op: Identity, x: Array) -> Array:
    """The same elements."""
    return x
