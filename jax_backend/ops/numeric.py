"""Lowerings of `ir.ops.numeric`. Integers wrap; floats follow IEEE; halves go by f32 where one step is not all.

Left to the platform, where Burn panics: integer division and remainder by zero.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ir
from ir.dtype import I64
from ir.errors import ShapeError
from ir.ops.numeric import DefaultDistribution, PadBorder, RandomRecord
from ir.ops.records import Binary, Unary, WithDim, WithScalar
from ir.scalar import convert
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, broadcast, const, float_to_int, out_dtype, widen_half

MAX_MULTIPLIED = 32
"""Largest |exponent| of a float that is done by multiplying.

On 1 Mi values, CPU: 0.3 ms against 12 ms for `pow`. Each doubling of the exponent doubles the error, 16 ulp at 32.
"""


def divide(lhs: Array, rhs: Array) -> Array:
    """A quotient, lhs / rhs, of two arrays of one shape."""
    if jnp.issubdtype(lhs.dtype, jnp.floating):
        # XLA divides by a broadcast number through its reciprocal: off by a third in f16 (0.1 / 3e4), 0 in f32 where
        # the reciprocal is denormal (1e38 / 2e38). A divisor that depends on each element is none, at no cost.
        rhs = jnp.where(jnp.isnan(lhs), lhs, rhs)
    return lax.div(lhs, rhs)


def remainder(lhs: Array, rhs: Array) -> Array:
    """The exact lhs - rhs * floor(lhs / rhs), rounded once; it has the sign of `rhs`."""
    return jnp.remainder(widen_half(lhs), widen_half(rhs)).astype(lhs.dtype)


def power(lhs: Array, rhs: Array) -> Array:
    """A power, `lhs` to the `rhs`. An integer exponent is read as u32, so that a negative one is a large one."""
    if jnp.issubdtype(lhs.dtype, jnp.floating):
        return jnp.power(widen_half(lhs), widen_half(rhs)).astype(lhs.dtype)
    exponent = rhs.astype(jnp.uint32)
    result = jnp.full_like(lhs, 1)
    # Unrolled, the 32 steps are one fused pass: 2 ms on 1 Mi values, CPU; a loop takes 26 ms.
    for bit in range(32):
        is_set = (exponent & jnp.uint32(1 << bit)) != 0
        result = lax.select(is_set, result * lhs, result)
        lhs = lhs * lhs
    return result


ELEMENTWISE: dict[type[Binary | WithScalar], Callable[[Array, Array], Array]] = {
    ir.Add: lax.add,
    ir.Sub: lax.sub,
    ir.Mul: lax.mul,
    ir.Div: divide,
    ir.Rem: remainder,
    ir.Powi: power,
    ir.Greater: lax.gt,
    ir.GreaterEqual: lax.ge,
    ir.Lower: lax.lt,
    ir.LowerEqual: lax.le,
    ir.AddScalar: lax.add,
    ir.SubScalar: lax.sub,
    ir.MulScalar: lax.mul,
    ir.DivScalar: divide,
    ir.RemScalar: remainder,
    ir.GreaterElem: lax.gt,
    ir.GreaterEqualElem: lax.ge,
    ir.LowerElem: lax.lt,
    ir.LowerEqualElem: lax.le,
}


@lower(*ELEMENTWISE)
def elementwise(op: Binary | WithScalar, lhs: Array, rhs: Array) -> Array:
    """A function of two tensors, which broadcast, or of a tensor and a scalar."""
    return ELEMENTWISE[type(op)](*broadcast(lhs, rhs))


@lower(ir.PowiScalar)
def powi_scalar(op: ir.PowiScalar, x: Array) -> Array:
    """A static power of x. Exponents that truncate to -2..2 truncate; any other fraction is a true power of a float."""
    if jnp.issubdtype(x.dtype, jnp.integer):
        return lax.integer_pow(x, int(convert(op.rhs.value, I64)) % 2**32)
    exponent, wide = float(op.rhs.value), widen_half(x)
    integral = int(convert(exponent, I64))
    if abs(integral) <= 2 or (integral == exponent and abs(integral) <= MAX_MULTIPLIED):
        return lax.integer_pow(wide, integral).astype(x.dtype)
    return jnp.power(wide, widen_half(const(exponent, x))).astype(x.dtype)


# Integer bounds arrive as i64 or u64 and may lie outside the dtype of x. The upper bound goes first: the lower one wins
# where they cross. Widening is one fused pass; comparing in the narrow dtype was no faster (0.17 against 0.15 ms).


@lower(ir.Clamp)
def clamp(op: ir.Clamp, x: Array, low: Array, high: Array) -> Array:
    """Held within [low, high]; NaN in x or in a bound comes through."""
    return lax.max(lax.min(x.astype(high.dtype), high), low).astype(x.dtype)


@lower(ir.ClampMin)
def clamp_min(op: ir.ClampMin, x: Array, low: Array) -> Array:
    """The larger of x and the bound."""
    return lax.max(x.astype(low.dtype), low).astype(x.dtype)


@lower(ir.ClampMax)
def clamp_max(op: ir.ClampMax, x: Array, high: Array) -> Array:
    """The smaller of x and the bound."""
    return lax.min(x.astype(high.dtype), high).astype(x.dtype)


def sign(x: Array) -> Array:
    """1, -1, or 0 for both zeros and NaN, which `lax.sign` would keep."""
    zero = const(0, x)
    return lax.gt(x, zero).astype(x.dtype) - lax.lt(x, zero).astype(x.dtype)


UNARY: dict[type[Unary], Callable[[Array], Array]] = {ir.Abs: jnp.abs, ir.Neg: lax.neg, ir.Sign: sign}


@lower(*UNARY)
def unary(op: Unary, x: Array) -> Array:
    """A function of one number."""
    return UNARY[type(op)](x)


@lower(ir.Full)
def full(op: ir.Full, value: Array) -> Array:
    """The scalar everywhere."""
    return lax.broadcast(value, op.out.shape.dims)


CUMULATIVE: dict[type[WithDim], Callable[[Array, int], Array]] = {
    ir.CumSum: lax.cumsum,
    ir.CumProd: lax.cumprod,
    ir.CumMin: lax.cummin,
    ir.CumMax: lax.cummax,
}


@lower(*CUMULATIVE)
def cumulative(op: WithDim, x: Array) -> Array:
    """A running fold along `op.axis`; halves accumulate in f32."""
    return CUMULATIVE[type(op)](widen_half(x), op.axis).astype(x.dtype)


@lower(ir.Pad)
def pad(op: ir.Pad, x: Array, constant: tuple[Array, ...]) -> Array:
    """Elements added around x: `constant`, or taken from x, one axis after the other.

    Raises:
        ShapeError: an axis is too short to be mirrored that far, or has no edge.
    """
    if constant:
        return lax.pad(x, constant[0], [(before, after, 0) for before, after in op.padding])
    for axis, (size, padding) in enumerate(zip(x.shape, op.padding, strict=True)):
        # numpy would bounce between the edges where Burn panics.
        if op.mode is PadBorder.Reflect and max(padding) >= size:
            raise ShapeError(f"Pad.padding: to reflect {op.input}, expected < {size} on axis {axis}, got {padding}")
        if op.mode is PadBorder.Edge and size == 0 and any(padding):
            raise ShapeError(f"Pad.padding: {op.input} has no edge on axis {axis}, expected (0, 0), got {padding}")
    return jnp.pad(x, op.padding, mode="reflect" if op.mode is PadBorder.Reflect else "edge")


@lower(ir.Random, ir.IntRandom)
def random(op: RandomRecord, key: Array, parameters: tuple[Array, ...]) -> Array:
    """Random numbers in the dtype of `op.out`, which alone decides: either kind may come with either sort of dtype."""
    dtype, shape = out_dtype(op.out), op.out.shape.dims
    given = op.distribution
    variant = given.value if isinstance(given, DefaultDistribution) else given.variant
    if variant == "Bernoulli":
        return jax.random.bernoulli(key, parameters[0], shape).astype(dtype)
    draw = random_ints if op.out.dtype.is_int else random_floats
    return draw(variant, key, shape, dtype, parameters)


def random_floats(
    variant: str, key: Array, shape: tuple[int, ...], dtype: np.dtype, parameters: tuple[Array, ...]
) -> Array:
    """Gaussian (mean, std), uniform in [low, high), by default in [0, 1). Halves are drawn in f32 and rounded."""
    wide = jnp.float64 if dtype == jnp.float64 else jnp.float32
    if variant == "Normal":
        mean, std = parameters
        return (jax.random.normal(key, shape, wide) * std + mean).astype(dtype)
    if variant == "Default":
        return jax.random.uniform(key, shape, wide).astype(dtype)
    low, high = parameters
    # low + u * (high - low) rounds up to `high` now and then: on [4, 5), one f32 in 8 million.
    below = jnp.nextafter(high, low)
    return lax.min(jax.random.uniform(key, shape, wide, low, high), below).astype(dtype)


def random_ints(
    variant: str, key: Array, shape: tuple[int, ...], dtype: np.dtype, parameters: tuple[Array, ...]
) -> Array:
    """A truncated and saturated Gaussian (mean, std), uniform in [low, high), by default over the whole dtype."""
    if variant == "Normal":
        mean, std = parameters
        return float_to_int(jax.random.normal(key, shape, mean.dtype) * std + mean, dtype)
    if variant == "Default":
        bits = jax.random.bits(key, shape, jnp.dtype(f"uint{dtype.itemsize * 8}"))
        return lax.bitcast_convert_type(bits, dtype)
    low, high = parameters
    return jax.random.randint(key, shape, low, high, dtype)
