"""Helpers of the lowerings of more than one family."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ir.dtype import FLEX32, DType
from ir.tensor import TensorIr
from jax_backend.dtypes import jax_dtype

Array: TypeAlias = jax.Array
HALVES = (jnp.float16, jnp.bfloat16)

_precision: ContextVar[lax.Precision] = ContextVar("precision", default=lax.Precision.HIGHEST)


@contextmanager
def precision(value: lax.Precision) -> Generator[None]:
    """Trace with products of this precision. It is part of a program's configuration: one graph, other code."""
    token = _precision.set(value)
    try:
        yield
    finally:
        _precision.reset(token)


def dot_precision(dtype: DType) -> lax.Precision:
    """Precision of a matrix product or convolution on operands of `dtype`.

    Highest unless a `precision` context relaxes it, since XLA's default is TF32 on NVIDIA and bf16 on TPU; Flex32 asks
    for the fast path.
    """
    return lax.Precision.DEFAULT if dtype is FLEX32 else _precision.get()


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
    """A 0-d constant in the dtype of `like`, infinite beyond its range: a bare Python number could promote."""
    with np.errstate(over="ignore"):
        return jnp.asarray(value, dtype=like.dtype)


def broadcast(*arrays: Array) -> tuple[Array, ...]:
    """Arrays of equal rank broadcast against each other: per axis equal, or one of them 1 (1 and 0 give 0)."""
    return tuple(jnp.broadcast_arrays(*arrays))


def float_to_int(x: Array, dtype: np.dtype) -> Array:
    """Floats as integers of `dtype`: truncated toward zero, saturated, NaN as 0.

    XLA leaves values outside the range to the platform, so the bounds are compared here; as powers of two they are
    exact in every float dtype that reaches this.
    """
    x = widen_half(x)
    info = np.iinfo(dtype)
    low, beyond = const(float(info.min), x), const(float(info.max + 1), x)
    inside = jnp.where((x > low) & (x < beyond), x, const(0.0, x)).astype(dtype)
    limit = jnp.where(x >= beyond, jnp.asarray(info.max, dtype), jnp.asarray(info.min, dtype))
    return jnp.where((x <= low) | (x >= beyond), limit, inside)


def is_nonzero(x: Array) -> Array:
    """Truth of each element: NaN is true, -0.0 is not."""
    return x if x.dtype == jnp.bool_ else x != const(0, x)


def cast(x: Array, dtype: np.dtype) -> Array:
    """`x` in `dtype`, by the rules of the IR.

    Floats become integers truncated and saturated, NaN as 0; integers become integers by their low bits; a bool is 1 or
    0. Float64 and integers reach a half through float32, as in Burn, rounding twice.
    """
    if x.dtype == dtype:
        return x
    if jnp.issubdtype(x.dtype, jnp.floating) and jnp.issubdtype(dtype, jnp.integer):
        return float_to_int(x, dtype)
    return x.astype(jnp.float32).astype(dtype) if dtype in HALVES else x.astype(dtype)
