"""Quantized tensors: their bytes, quantization and back, and any operation on them.

On a device a quantized tensor is one flat uint8 array: its bytes as they travel, little-endian and without padding:

    values    Native: a byte each. PackedU32: 32 / bits in a word, the first in the lowest bits. PackedNative: two
              E2M1 in a byte, all else a byte each. A packed axis is filled up to whole words line by line
    scales    one per block in row-major order of the grid, or one in all, in the scheme's scale dtype
    global    one float32, in a two-level scheme

A value stands for `global * scale * value`. Values are integers whatever their kind: Burn's CPU backends round E4M3,
E5M2 and E2M1 to integers too and saturate them at 8 bits, and this follows them.
Source: burn-std `tensor/quantization.rs`, burn-flex `ops/qtensor.rs`; bytes checked against Burn 0.22.1.
"""

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import lax
from msgspec.structs import replace

import ir
from ir.dtype import DType, PackedStore, QuantMode, QuantScheme, QuantValue, ScaleDtype
from ir.errors import DTypeError, UnsupportedOp
from ir.op import Op, map_tensors
from ir.shapes.quantize import scale_grid
from ir.tensor import TensorIr
from jax_backend.dtypes import jax_dtype
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, const, out_dtype

MIN_POSITIVE: Final = 2.0**-126
"""What a scale that is zero or not finite acts as, rounded up to its dtype."""

_RANGE: Final[dict[QuantValue, tuple[float, float]]] = {
    QuantValue.Q8F: (-128.0, 127.0),
    QuantValue.Q4F: (-8.0, 7.0),
    QuantValue.Q2F: (-2.0, 1.0),
    QuantValue.Q8S: (-127.0, 127.0),
    QuantValue.Q4S: (-7.0, 7.0),
    QuantValue.Q2S: (-1.0, 1.0),
    QuantValue.E4M3: (-448.0, 448.0),
    QuantValue.E5M2: (-57344.0, 57344.0),
    QuantValue.E2M1: (-6.0, 6.0),
}
_SCALE_STORE: Final = {
    ScaleDtype.F32: jnp.float32,
    ScaleDtype.F16: jnp.float16,
    ScaleDtype.BF16: jnp.bfloat16,
    ScaleDtype.UE8M0: jnp.uint8,
    ScaleDtype.UE4M3: jnp.float8_e4m3fn,
}
_SCALE_MAX: Final = {
    ScaleDtype.F32: float(jnp.finfo(jnp.float32).max),
    ScaleDtype.F16: 65504.0,
    ScaleDtype.BF16: float(jnp.finfo(jnp.bfloat16).max),
    ScaleDtype.UE8M0: 2.0**127,
    ScaleDtype.UE4M3: 448.0,
}
_BELOW_GLOBAL: Final = (ScaleDtype.F16, ScaleDtype.UE4M3)
"""Block scales whose range a global scale can absorb."""


class Quantized(NamedTuple):
    """A quantized tensor taken apart: values int8 in its shape, scales as stored in grid shape, global scale (1,)."""

    values: Array
    scales: Array
    global_: Array | None


class Packing(NamedTuple):
    """How values fill the words of a packed store: `per_word` of `bits` each, along `axis`; a word has `word_bits`."""

    per_word: int
    bits: int
    axis: int
    word_bits: int


@lower(ir.Quantize)
def quantize(op: ir.Quantize, x: Array, scales: Array, global_: Array | None) -> Array:
    """The scales are rounded up to their dtype before anything is divided by them."""
    dims, scheme = op.out.shape.dims, checked(op.scheme)
    stored = round_up(scales.astype(jnp.float32).reshape(scale_grid(dims, scheme)), scheme_scale_dtype(scheme))
    whole = None if global_ is None else round_up(global_.astype(jnp.float32), ScaleDtype.F32)
    return pack(_quantized(x.astype(jnp.float32), stored, whole, scheme), _scheme(op.out))


@lower(ir.Dequantize)
def dequantize(op: ir.Dequantize, data: Array) -> Array:
    """In float32, then in the dtype asked for."""
    return floats_of(data, op.input).astype(out_dtype(op.out))


def checked(scheme: QuantScheme) -> QuantScheme:
    """`scheme`, if Burn can quantize by it.

    Raises:
        UnsupportedOp: it looks values up in a codebook, which no operation carries.
        DTypeError: the scales of a two-level scheme do not fit together.
    """
    if scheme.mode is QuantMode.Lookup:
        raise UnsupportedOp("scheme.mode: expected Symmetric, got Lookup, whose codebook no operation carries")
    if scheme.block is None or scheme.tensor is None:
        return scheme
    if scheme.block.dtype not in _BELOW_GLOBAL:
        raise DTypeError(
            f"scheme.block: block scales in {scheme.block.dtype.value} reach f32's range, which a per-tensor scale "
            "cannot absorb; use F16 or UE4M3 block scales"
        )
    if scheme.tensor is not ScaleDtype.F32:
        raise DTypeError(f"scheme.tensor: expected F32 above block scales, got {scheme.tensor.value}")
    return scheme


def scheme_scale_dtype(scheme: QuantScheme) -> ScaleDtype:
    """Dtype of the scales: of the blocks, else of the tensor, else float32."""
    return scheme.block.dtype if scheme.block else scheme.tensor or ScaleDtype.F32


def has_global(scheme: QuantScheme) -> bool:
    """Two levels: block scales relative to a global one."""
    return scheme.block is not None and scheme.tensor is not None


def packing_of(scheme: QuantScheme, ndim: int) -> Packing | None:
    """How values share words; None where each has a byte of its own.

    Raises:
        DTypeError: the tensor has no such axis to pack along.
    """
    store, bits = scheme.store, scheme.value.bits
    if not isinstance(store, PackedStore):
        return None
    if store.variant == "PackedNative" and scheme.value is not QuantValue.E2M1:
        return None
    word_bits = 32 if store.variant == "PackedU32" else 8
    if store.payload >= ndim:
        raise DTypeError(f"scheme.store: expected a packed axis below {ndim}, got {store.payload}")
    return Packing(word_bits // bits, bits, ndim - 1 - store.payload, word_bits)


def _word_dims(dims: tuple[int, ...], packing: Packing) -> tuple[int, ...]:
    """Shape in words: the packed axis filled up line by line."""
    words = -(-dims[packing.axis] // packing.per_word)
    return (*dims[: packing.axis], words, *dims[packing.axis + 1 :])


def storage_size(tensor: TensorIr) -> int:
    """Length in bytes of the array of a quantized tensor.

    >>> from ir.dtype import NativeStore, QuantMode, QuantScheme, QuantValue, qfloat
    >>> q8 = QuantScheme(QuantValue.Q8S, NativeStore.Native, QuantMode.Symmetric, None, None)
    >>> storage_size(ir.tensor(0, (2, 3), qfloat(q8)))
    10
    """
    return _values_size(tensor) + _scales_size(tensor) + 4 * has_global(_scheme(tensor))


def _values_size(tensor: TensorIr) -> int:
    dims = tensor.shape.dims
    packing = packing_of(_scheme(tensor), len(dims))
    return math.prod(_word_dims(dims, packing)) * packing.word_bits // 8 if packing else math.prod(dims)


def _scales_size(tensor: TensorIr) -> int:
    scheme = _scheme(tensor)
    itemsize = jnp.dtype(_SCALE_STORE[scheme_scale_dtype(scheme)]).itemsize
    return math.prod(scale_grid(tensor.shape.dims, scheme)) * itemsize


def _scheme(tensor: TensorIr) -> QuantScheme:
    assert isinstance(tensor.dtype, ir.ParamDType)
    return tensor.dtype.scheme


def unpack(data: Array, tensor: TensorIr) -> Quantized:
    """The parts of a quantized tensor from its bytes.

    Raises:
        DTypeError: the number of bytes is not what the scheme and the shape need.
    """
    if data.shape != (storage_size(tensor),):
        raise DTypeError(f"{tensor}: expected {storage_size(tensor)} bytes of quantized data, got {data.size}")
    scheme, dims = _scheme(tensor), tensor.shape.dims
    first, last = _values_size(tensor), _values_size(tensor) + _scales_size(tensor)
    scales = _from_bytes(data[first:last], _SCALE_STORE[scheme_scale_dtype(scheme)])
    packing = packing_of(scheme, len(dims))
    head = data[:first]
    values = _split_words(head, dims, packing) if packing else _from_bytes(head, jnp.int8).reshape(dims)
    global_ = _from_bytes(data[last:], jnp.float32) if has_global(scheme) else None
    return Quantized(values, scales.reshape(scale_grid(dims, scheme)), global_)


def pack(parts: Quantized, scheme: QuantScheme) -> Array:
    """The bytes of a quantized tensor from its parts."""
    packing = packing_of(scheme, parts.values.ndim)
    values = _join_words(parts.values, packing) if packing else parts.values
    return jnp.concatenate([_to_bytes(part) for part in (values, *parts[1:]) if part is not None])


def _to_bytes(x: Array) -> Array:
    return lax.bitcast_convert_type(x, jnp.uint8).reshape(-1)


def _from_bytes(data: Array, dtype: Any) -> Array:
    size = jnp.dtype(dtype).itemsize
    return lax.bitcast_convert_type(data.reshape(-1, size) if size > 1 else data, dtype)


def _join_words(values: Array, packing: Packing) -> Array:
    """Int8 values as words of `packing`, the packed axis in its place."""
    lines = jnp.moveaxis(values, packing.axis, -1)
    missing = -lines.shape[-1] % packing.per_word
    lines = jnp.pad(lines, [(0, 0)] * (lines.ndim - 1) + [(0, missing)])
    fields = lines.reshape(*lines.shape[:-1], -1, packing.per_word).astype(jnp.uint8).astype(jnp.uint32)
    fields = (fields & const((1 << packing.bits) - 1, fields)) << _shifts(packing, fields.ndim)
    words = fields.sum(-1, dtype=jnp.uint32).astype(jnp.uint32 if packing.word_bits == 32 else jnp.uint8)
    return jnp.moveaxis(words, -1, packing.axis)


def _split_words(data: Array, dims: tuple[int, ...], packing: Packing) -> Array:
    """Bytes of words of `packing` as int8 values of shape `dims`."""
    words = _from_bytes(data, jnp.uint32 if packing.word_bits == 32 else jnp.uint8).astype(jnp.uint32)
    lines = jnp.moveaxis(words.reshape(_word_dims(dims, packing)), packing.axis, -1)
    fields = lines[..., None] >> _shifts(packing, lines.ndim + 1)
    unused = jnp.int8(8 - packing.bits)
    values = (fields.astype(jnp.uint8).astype(jnp.int8) << unused) >> unused  # the second shift extends the sign
    values = values.reshape(*lines.shape[:-1], -1)[..., : dims[packing.axis]]
    return jnp.moveaxis(values, -1, packing.axis)


def _shifts(packing: Packing, ndim: int) -> Array:
    """Position of each value of a word, along the last of `ndim` axes."""
    places = jnp.arange(packing.per_word, dtype=jnp.uint32) * jnp.uint32(packing.bits)
    return places.reshape((1,) * (ndim - 1) + (-1,))


def round_up(scale: Array, dtype: ScaleDtype) -> Array:
    """A float32 scale as stored in `dtype`: the next value that is no smaller, at most the largest.

    Up, since the largest element would clip otherwise. Works on the bits: CPUs flush subnormal floats to zero here.
    """
    bits = lax.bitcast_convert_type(scale, jnp.uint32)
    if dtype is ScaleDtype.UE8M0:
        return _round_up_to_power(bits)
    smallest = jnp.full_like(scale, MIN_POSITIVE)
    if dtype is ScaleDtype.F32:
        return jnp.where((scale > 0) & jnp.isfinite(scale), scale, smallest)
    scale = jnp.where(scale > 0, scale, smallest)  # NaN as well
    largest = const(_SCALE_MAX[dtype], scale)
    digits = {ScaleDtype.F16: 11, ScaleDtype.BF16: 8, ScaleDtype.UE4M3: 4}[dtype]
    step = const(1 << (24 - digits), bits)
    bits = lax.bitcast_convert_type(jnp.minimum(scale, largest), jnp.uint32)
    rounded = lax.bitcast_convert_type((bits + step - const(1, bits)) & ~(step - const(1, bits)), jnp.float32)
    if dtype is not ScaleDtype.BF16:  # whose smallest normal number is that of float32
        normal, spacing = (2.0**-14, 2.0**-24) if dtype is ScaleDtype.F16 else (2.0**-6, 2.0**-9)
        rounded = jnp.where(scale < normal, jnp.ceil(scale / spacing) * spacing, rounded)
    return rounded.astype(_SCALE_STORE[dtype])


def _round_up_to_power(bits: Array) -> Array:
    """Code of the next power of two of a float32 given as bits: 2^(code - 127) from 2^-127 to 2^127."""
    code = ((bits + const(0x007F_FFFF, bits)) >> const(23, bits)).astype(jnp.uint8)
    code = jnp.where(bits <= 0x0040_0000, jnp.uint8(0), code)
    code = jnp.where(bits >= 0x7F00_0000, jnp.uint8(254), code)
    is_nan = (bits & 0x7FFF_FFFF) > 0x7F80_0000
    code = jnp.where(bits >= 0x8000_0000, jnp.uint8(0), code)  # negative: no scale is
    return jnp.where(is_nan, jnp.uint8(1), code)  # MIN_POSITIVE


def _factor(stored: Array, global_: Array | None, dtype: ScaleDtype) -> Array:
    """What a value of each block is multiplied with, float32 in grid shape."""
    if dtype is ScaleDtype.UE8M0:
        bits = stored.astype(jnp.uint32) << 23
        bits = jnp.where(stored == 0, const(0x0040_0000, bits), bits)
        bits = jnp.where(stored == 255, const(0x7FC0_0000, bits), bits)
        return lax.bitcast_convert_type(bits, jnp.float32)
    scales = stored.astype(jnp.float32)
    return scales if global_ is None else global_.reshape((1,) * scales.ndim) * scales


def _inverse_factor(stored: Array, global_: Array | None, dtype: ScaleDtype) -> Array:
    """1 / `_factor`, also where the factor is subnormal and arithmetic would take it for 0."""
    if dtype is ScaleDtype.UE8M0:
        return _factor(const(254, stored) - stored, None, dtype)
    return 1.0 / _factor(stored, global_, dtype)


def _per_element(grid: Array, dims: tuple[int, ...], scheme: QuantScheme) -> Array:
    """The number of its block at each element."""
    if scheme.block is None:
        return grid.reshape((1,) * len(dims))
    for axis, (blocks, size) in enumerate(zip(grid.shape, dims, strict=True)):
        grid = jnp.repeat(grid, size // max(blocks, 1), axis=axis)
    return grid


def _quantized(x: Array, stored: Array, global_: Array | None, scheme: QuantScheme) -> Quantized:
    """Float32 `x` divided by its scales, rounded half away from zero and clamped; NaN gives 0."""
    inverse = _inverse_factor(stored, global_, scheme_scale_dtype(scheme))
    scaled = x * _per_element(inverse, x.shape, scheme)
    whole = jnp.trunc(scaled)
    whole = whole + jnp.where(jnp.abs(scaled - whole) >= 0.5, jnp.sign(scaled), const(0, scaled))
    low, high = _RANGE[scheme.value]
    clamped = jnp.clip(whole, max(low, -128.0), min(high, 127.0))
    return Quantized(jnp.where(jnp.isnan(scaled), const(0, scaled), clamped).astype(jnp.int8), stored, global_)


def floats_of(data: Array, tensor: TensorIr) -> Array:
    """The float32 values that the bytes of a quantized tensor stand for."""
    parts, scheme = unpack(data, tensor), _scheme(tensor)
    factor = _factor(parts.scales, parts.global_, scheme_scale_dtype(scheme))
    return _per_element(factor, tensor.shape.dims, scheme) * parts.values.astype(jnp.float32)


def quantize_dynamic(x: Array, scheme: QuantScheme) -> Array:
    """Bytes of float32 `x`, quantized by its largest magnitudes."""
    dtype = scheme_scale_dtype(checked(scheme))
    low, high = _RANGE[scheme.value]
    grid = scale_grid(x.shape, scheme)
    magnitudes = jnp.where(jnp.isnan(x), const(0, x), jnp.abs(x))
    if scheme.block is None:
        raw = magnitudes.max(initial=0.0).reshape(1)
    else:
        halved = [n for blocks, size in zip(grid, x.shape, strict=True) for n in (blocks, size // max(blocks, 1))]
        raw = magnitudes.reshape(halved).max(tuple(range(1, 2 * x.ndim, 2)), initial=0.0)
    raw = _quotient(2.0 * raw, const(high - low, raw))
    global_ = None
    if has_global(scheme):
        global_ = round_up(_quotient(raw.max(initial=0.0), const(_SCALE_MAX[dtype], raw)).reshape(1), ScaleDtype.F32)
        raw = _quotient(raw, global_.reshape((1,) * raw.ndim))
    return pack(_quantized(x, round_up(raw, dtype), global_, scheme), scheme)


def _quotient(lhs: Array, rhs: Array) -> Array:
    """Float32 lhs / rhs, correctly rounded.

    XLA turns a division by a broadcast scalar into a product with its reciprocal, which is one unit off three times in
    four; in float64 that error is too small to survive the rounding.
    """
    return (lhs.astype(jnp.float64) / rhs.astype(jnp.float64)).astype(jnp.float32)


MOVES: Final = (ir.Reshape, ir.SwapDims, ir.Permute, ir.Flip, ir.Expand, ir.Slice, ir.Select, ir.Gather)
"""Operations that move elements and change none."""


RunPlain: TypeAlias = Callable[[Op, Callable[[TensorIr], Array]], tuple[Array, ...]]


def touches_quantized(op: Op) -> bool:
    """Some tensor of `op` is quantized, and `op` is neither of the two kinds that know how."""
    return not isinstance(op, ir.Quantize | ir.Dequantize) and any(
        t.dtype.is_quantized for t in (*op.inputs, *op.outputs)
    )


def run_quantized(op: Op, lookup: Callable[[TensorIr], Array], run: RunPlain) -> tuple[Array, ...]:
    """Run an operation some of whose tensors are quantized.

    Elements that only move keep their value and the scale of the tensor. Everything else, and any move of blocks,
    works on the floats they stand for; an output that is declared quantized gets scales from its magnitudes.

    Args:
        op: the operation.
        lookup: the value of an input tensor; of a quantized one its bytes.
        run: runs an operation without quantized tensors.
    """
    described = {t.id.value: t for t in op.inputs}
    if _is_tensor_wide_move(op):
        parts = unpack(lookup(op.inputs[0]), op.inputs[0])
        (moved,) = run(_retyped(op, ir.I8), lambda t: parts.values if t.dtype is ir.I8 else lookup(t))
        return (pack(parts._replace(values=moved), _scheme(op.outputs[0])),)
    dtype = next((t.dtype for t in (*op.inputs, *op.outputs) if t.dtype.is_float), ir.F32)

    def floats(tensor: TensorIr) -> Array:
        given = described[tensor.id.value]
        value = lookup(given)
        return floats_of(value, given).astype(jax_dtype(dtype)) if given.dtype.is_quantized else value

    outputs = run(_retyped(op, dtype), floats)
    return tuple(
        quantize_dynamic(x.astype(jnp.float32), _scheme(t)) if t.dtype.is_quantized else x
        for x, t in zip(outputs, op.outputs, strict=True)
    )


def _is_tensor_wide_move(op: Op) -> bool:
    if not isinstance(op, MOVES):
        return False
    source, target = op.inputs[0].dtype, op.outputs[0].dtype
    both = source.is_quantized and target.is_quantized
    return both and all(_scheme(t).block is None for t in (op.inputs[0], op.outputs[0]))


def _retyped(op: Op, dtype: DType) -> Op:
    """`op` with `dtype` in place of every quantized one."""
    return map_tensors(op, lambda t: replace(t, dtype=dtype) if t.dtype.is_quantized else t)
