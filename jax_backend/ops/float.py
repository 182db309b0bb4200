"""Lowerings of `ir.ops.float`. Each works in f32 on halves and rounds once; each follows IEEE at the edges.

Denormals are the platform's business: XLA flushes them to zero on CPU.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

import ir
from ir.ops.records import Binary, Unary
from ir.scalar import convert
from jax_backend.lowering import lower
from jax_backend.ops._shared import (
    Array,
    broadcast,
    cast,
    const,
    dot_precision,
    is_half,
    out_dtype,
    widen_half,
)

UNARY: dict[type[Unary], Callable[[Array], Array]] = {
    ir.Exp: jnp.exp,
    ir.Log: jnp.log,
    ir.Log1p: jnp.log1p,
    ir.Erf: lax.erf,
    ir.Sqrt: jnp.sqrt,
    ir.Recip: jnp.reciprocal,
    ir.Sin: jnp.sin,
    ir.Cos: jnp.cos,
    ir.Tan: jnp.tan,
    ir.Sinh: jnp.sinh,
    ir.Cosh: jnp.cosh,
    ir.Tanh: jnp.tanh,
    ir.ArcSin: jnp.arcsin,
    ir.ArcCos: jnp.arccos,
    ir.ArcTan: jnp.arctan,
    ir.ArcSinh: jnp.arcsinh,
    ir.ArcCosh: jnp.arccosh,
    ir.ArcTanh: jnp.arctanh,
    ir.Round: jnp.round,  # to even; lax.round goes away from zero by default
    ir.Floor: jnp.floor,
    ir.Ceil: jnp.ceil,
    ir.Trunc: jnp.trunc,
}

BINARY: dict[type[Binary], Callable[[Array, Array], Array]] = {
    ir.Powf: jnp.power,
    ir.ArcTan2: jnp.arctan2,
    ir.Hypot: jnp.hypot,
}


@lower(*UNARY)
def unary(op: Unary, x: Array) -> Array:
    """A function of one float."""
    return UNARY[type(op)](widen_half(x)).astype(x.dtype)


@lower(*BINARY)
def binary(op: Binary, lhs: Array, rhs: Array) -> Array:
    """A function of two floats, which broadcast."""
    return BINARY[type(op)](*broadcast(widen_half(lhs), widen_half(rhs))).astype(lhs.dtype)


@lower(ir.IsNan)
def is_nan(op: ir.IsNan, x: Array) -> Array:
    """Whether NaN."""
    return jnp.isnan(x)


@lower(ir.IsInf)
def is_inf(op: ir.IsInf, x: Array) -> Array:
    """Whether infinite."""
    return jnp.isinf(x)


@lower(ir.PowfScalar)
def powf_scalar(op: ir.PowfScalar, x: Array) -> Array:
    """A static power of x. The exponent is rounded to the dtype of x first."""
    wide = widen_half(x)
    exponent = const(convert(op.rhs.value, op.lhs.dtype), wide).astype(x.dtype)
    return jnp.power(wide, exponent.astype(wide.dtype)).astype(x.dtype)


@lower(ir.Matmul)
def matmul(op: ir.Matmul, lhs: Array, rhs: Array) -> Array:
    """Matrix product: halves accumulate in f32, integers wrap in their dtype, different floats meet in f32 or f64."""
    if lhs.dtype != rhs.dtype:
        wide = jnp.float64 if jnp.float64 in (lhs.dtype, rhs.dtype) else jnp.float32
        lhs, rhs = lhs.astype(wide), rhs.astype(wide)
    accumulator = jnp.float32 if is_half(lhs) else lhs.dtype
    precision = dot_precision(op.lhs.dtype)
    return jnp.matmul(lhs, rhs, precision=precision, preferred_element_type=accumulator).astype(out_dtype(op.out))


@lower(ir.Cross)
def cross(op: ir.Cross, lhs: Array, rhs: Array) -> Array:
    """Cross product along `op.dim`."""
    a, b = broadcast(widen_half(lhs), widen_half(rhs))
    return jnp.cross(a, b, axis=op.dim).astype(lhs.dtype)


@lower(ir.IntoInt, ir.IntoFloat)
def into(op: ir.IntoInt | ir.IntoFloat, x: Array) -> Array:
    """From one of float, int and bool to another."""
    return cast(x, out_dtype(op.out))
