"""Helpers of the lowerings of more than one family."""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ir.tensor import TensorIr
from jax_backend.dtypes import jax_dtype

Array: TypeAlias = jax.Array
HALVES = (jnp.float16, jnp.bfloat16)


def out_dtype(tensor: TensorIr) -> np.dtype:
    """Dtype that the array of an output must have."""
    return jax_dtype(tensor.dtype)


def is_half(x: Array) -> bool:
    """A float16 or bfloat16 array, which is computed in float32 and rounded once."""
    return x.dtype in HALVES


def widen_half(x: Array) -> Array:
    """A half as float32; anything else as it is."""
    return x.astype(jnp.float32) if is_half(x) else x


def const(value: float, like: Array) -> Array:
    """A 0-d constant in the dtype of `like`: a bare Python number could promote."""
    return jnp.asarray(value, dtype=like.dtype)


def broadcast(*arrays: Array) -> tuple[Array, ...]:
    """Arrays of equal rank broadcast against each other: per axis equal, or one of them 1 (1 and 0 give 0)."""
    return tuple(jnp.broadcast_arrays(*arrays))
