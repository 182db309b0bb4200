"""Quantization, one element and one bit field at a time."""

import math
from itertools import product

import ml_dtypes
import numpy as np

BITS = {"Q8F": 8, "Q8S": 8, "E4M3": 8, "E5M2": 8, "Q4F": 4, "Q4S": 4, "E2M1": 4, "Q2F": 2, "Q2S": 2}
LIMITS = {
    "Q8F": (-128, 127), "Q8S": (-127, 127), "Q4F": (-8, 7), "Q4S": (-7, 7), "Q2F": (-2, 1), "Q2S": (-1, 1),
    "E4M3": (-448, 448), "E5M2": (-57344, 57344), "E2M1": (-6, 6),
}  # fmt: skip
FLOATS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "UE4M3": ml_dtypes.float8_e4m3fn}


def scale_table(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Every finite positive scale of a dtype narrower than f32, ascending: its value and the bytes that store it."""
    if dtype == "UE8M0":
        return np.exp2(np.arange(-127.0, 128)), np.arange(255, dtype=np.uint8)
    width = np.uint16 if dtype in ("F16", "BF16") else np.uint8
    codes = np.arange(1, np.iinfo(width).max // 2 + 1, dtype=width)
    with np.errstate(invalid="ignore"):  # the codes of NaN, which are left out below
        values = codes.view(FLOATS[dtype]).astype(np.float64)
    return values[np.isfinite(values)], codes[np.isfinite(values)]


def stored_scale(raw: float, dtype: str) -> tuple[np.float32, bytes]:
    """The scale that is used for `raw`, the next one that is no smaller, and its bytes."""
    if dtype == "F32":
        used = np.float32(raw if raw > 0 and math.isfinite(raw) else 2.0**-126)
        return used, used.tobytes()
    values, codes = scale_table(dtype)
    least = raw if raw > 0 or (raw == 0 and dtype == "UE8M0") else 2.0**-126
    place = min(int(np.searchsorted(values, least)), len(values) - 1)
    return np.float32(values[place]), codes[place].tobytes()


def blocks(dims: tuple[int, ...], block: tuple[int, ...] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Grid of blocks and block sizes, an entry per axis; without a block the whole tensor is one."""
    sizes = dims if block is None else (1,) * (len(dims) - len(block)) + block
    return tuple(d // s for d, s in zip(dims, sizes, strict=True)), sizes


def raw_scales(x: np.ndarray, value: str, block: tuple[int, ...] | None) -> np.ndarray:
    """Largest magnitude of each block over half the range, float32."""
    grid, sizes = blocks(x.shape, block)
    low, high = LIMITS[value]
    out = np.zeros(grid, np.float32)
    for place in np.ndindex(*grid):
        window = tuple(slice(p * s, (p + 1) * s) for p, s in zip(place, sizes, strict=True))
        out[place] = np.float32(2) * np.abs(x[window]).max() / np.float32(high - low)
    return out.reshape(1) if block is None else out


def quantized_values(
    x: np.ndarray, value: str, block: tuple[int, ...] | None, scales: np.ndarray, whole: float = 1.0
) -> np.ndarray:
    """Int8 values of `x`; `scales` and `whole` are the scales as used."""
    _, sizes = blocks(x.shape, block)
    low, high = LIMITS[value]
    out = np.zeros(x.shape, np.int8)
    for place in np.ndindex(*x.shape):
        scale = scales[tuple(p // s for p, s in zip(place, sizes, strict=True))] if block else scales[0]
        scaled = float(x[place] * np.float32(np.float64(1) / np.float64(np.float32(whole) * np.float32(scale))))
        rounded = math.floor(abs(scaled) + 0.5) * (1 if scaled >= 0 else -1)
        out[place] = max(min(rounded, high, 127), low, -128)
    return out


def value_bytes(values: np.ndarray, value: str, store: str, dim: int) -> bytes:
    """The values of a tensor as its store lays them out; `dim` is the packed axis, counted from the innermost."""
    if store == "Native" or (store == "PackedNative" and value != "E2M1"):
        return values.tobytes()
    width = 4 if store == "PackedU32" else 1
    bits, axis = BITS[value], values.ndim - 1 - dim
    per_word = 8 * width // bits
    words = list(values.shape)
    words[axis] = -(-words[axis] // per_word)
    out = b""
    for place in product(*map(range, words)):
        word = 0
        for n in range(per_word):
            at = list(place)
            at[axis] = place[axis] * per_word + n
            if at[axis] < values.shape[axis]:
                word |= (int(values[tuple(at)]) & (2**bits - 1)) << (n * bits)
        out += word.to_bytes(width, "little")
    return out
