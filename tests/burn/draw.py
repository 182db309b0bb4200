"""Where a generated case comes from: a row of choices, fresh from a seed or replayed.

Everything random in a case is a choice, a number below a bound, and 0 is always the simplest. So a case is its list of
choices, and a smaller case is a shorter list with smaller numbers: see `shrink`.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import ml_dtypes
import numpy as np

import ir
from ir.dtype import DType
from ir.scalar import ScalarIr, scalar
from tests.opcase import DTYPES

T = TypeVar("T")
Dims: TypeAlias = tuple[int, ...]

ELEMENT_CHOICES = 1 << 20
"""How many values an element is chosen from; even choices are taken from a list of special ones."""


class Draw:
    """Makes choices and remembers them in `choices`.

    Args:
        source: a random generator, or choices to repeat; past their end every choice is 0.
    """

    def __init__(self, source: np.random.Generator | Sequence[int]) -> None:
        self._rng = source if isinstance(source, np.random.Generator) else None
        self._given = iter(() if isinstance(source, np.random.Generator) else source)
        self.choices: list[int] = []

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        return int(self.many(1, bound)[0])

    def many(self, count: int, bound: int) -> np.ndarray:
        """`count` numbers in [0, bound)."""
        if self._rng is not None:
            made = self._rng.integers(0, bound, count)
        else:
            made = np.array([min(next(self._given, 0), bound - 1) for _ in range(count)], np.int64)
        self.choices += made.tolist()
        return made

    def between(self, low: int, high: int) -> int:
        """A number in [low, high], `low` being the simplest."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`, the first being the simplest."""
        return options[self.below(len(options))]

    def one_in(self, count: int) -> bool:
        """True once in `count` times."""
        return self.below(count) == count - 1


Content: TypeAlias = Callable[[Draw, Dims, DType], np.ndarray]
"""Makes the elements of an operand."""

FLOATS = (ir.F32, ir.F64, ir.F16, ir.BF16)
INTS = (ir.I32, ir.I64, ir.I16, ir.I8, ir.U8, ir.U16, ir.U32, ir.U64)
BOOLS = (ir.BOOL, ir.BOOL_U8)
"""The dtypes that Flex has. It lacks bools in 4 bytes, and most of its operations refuse Flex32."""

_SIMPLE = (0, 1, -1, 2, 0.5, -2, 3, -0.5, 4, -3, 1.5, 10, 0.1, -7)
_NOT_FINITE = (float("nan"), float("inf"), float("-inf"), -0.0)


def info(dtype: DType) -> "np.finfo | ml_dtypes.finfo | np.iinfo":
    """Limits of a dtype."""
    return np.iinfo(DTYPES[dtype]) if dtype.is_int else ml_dtypes.finfo(DTYPES[dtype])


def _edges(dtype: DType) -> list[float]:
    """Values at which implementations part: not finite, the largest, the smallest, what a cast or a power meets."""
    if dtype.is_bool:
        return []
    known = info(dtype)
    if dtype.is_int:
        low, high = int(known.min), int(known.max)
        return [low, high, low + 1, high - 1, high // 2, known.bits - 1, known.bits, 100, 127, 128]
    largest, tiny = float(known.max), float(known.tiny)
    return [*_NOT_FINITE, largest, -largest, tiny, -tiny, 255.5, -128.5, 2.5, 1e-3, 1e4, 127.0, 88.0, -88.0, 1 + 2**-8]


def anything(draw: Draw, dims: Dims, dtype: DType) -> np.ndarray:
    """Every value that the dtype has: mostly small ones, now and then edges or values of any size."""
    profile = draw.below(5)
    if profile < 2:
        return _mixed(draw, dims, dtype, _SIMPLE, spread=False)
    if profile < 4:
        return _mixed(draw, dims, dtype, (*_SIMPLE[:6], *_edges(dtype)), spread=False)
    return _mixed(draw, dims, dtype, (*_SIMPLE[:3], *_edges(dtype)), spread=True)


def finite(draw: Draw, dims: Dims, dtype: DType) -> np.ndarray:
    """Values of moderate size without NaN and infinities."""
    return _mixed(draw, dims, dtype, _SIMPLE, spread=False)


def tame(draw: Draw, dims: Dims, dtype: DType) -> np.ndarray:
    """Operands of sums of products: within -2..2, now and then a NaN, an infinity or a negative zero among them."""
    made = _mixed(draw, dims, dtype, (0, 1, -1, 2, 0.5, -2, -0.5, 1.5), spread=False)
    small = np.clip(made.astype(np.float64), -2, 2).astype(made.dtype)
    if not dtype.is_float or not small.size or not draw.one_in(6):
        return small
    small.reshape(-1)[draw.below(small.size)] = draw.pick(_NOT_FINITE)
    return small


def _mixed(draw: Draw, dims: Dims, dtype: DType, special: Sequence[float], *, spread: bool) -> np.ndarray:
    """Elements of which every second one, by chance, is special; the others lie within -4..4, or anywhere."""
    chosen = draw.many(int(np.prod(dims)), ELEMENT_CHOICES)
    if dtype.is_bool:
        return (chosen % 2 == 1).reshape(dims)
    target = DTYPES[dtype]
    rank, is_special = chosen >> 1, chosen % 2 == 0
    listed = [value if dtype.is_float else int(value) for value in special]
    if dtype.is_int:
        low, high = int(info(dtype).min), int(info(dtype).max)
        table = np.array([min(max(v, low), high) for v in listed], target)
        scrambled = (rank.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.uint64)
        other = scrambled.astype(target) if spread else (rank % 21 - 10 * (low < 0)).astype(target)
        return np.where(is_special, table[rank % len(table)], other).reshape(dims)
    with np.errstate(over="ignore"):
        unit = (rank + 0.5) / (ELEMENT_CHOICES / 2)
        other = np.copysign(2.0 ** ((unit * 2 % 1) * 40 - 20), unit - 0.5) if spread else unit * 8 - 4
        return np.where(is_special, np.array(listed)[rank % len(listed)], other).astype(target).reshape(dims)


def within(low: int, high: int) -> Content:
    """Whole numbers in [low, high]; nothing to choose from makes zeros."""

    def make(draw: Draw, dims: Dims, dtype: DType) -> np.ndarray:
        span = max(1, high - low + 1)
        return (low + draw.many(int(np.prod(dims)), span)).astype(DTYPES[dtype]).reshape(dims)

    return make


def real(low: float, high: float) -> Content:
    """Real numbers in [low, high]."""

    def make(draw: Draw, dims: Dims, dtype: DType) -> np.ndarray:
        unit = draw.many(int(np.prod(dims)), ELEMENT_CHOICES) / ELEMENT_CHOICES
        return (low + unit * (high - low)).astype(DTYPES[dtype]).reshape(dims)

    return make


def number(draw: Draw, dtype: DType) -> ScalarIr:
    """A scalar of any kind for a tensor of `dtype`: mostly one that fits."""
    kind = draw.below(8)
    if dtype.is_bool:
        return ScalarIr(Bool=draw.below(2) == 1) if kind < 5 else scalar(draw.pick((1, 0, -1, 0.5, 0.0)))
    element = anything(draw, (1,), dtype)[0]
    if kind < 5:
        return scalar(int(element) if dtype.is_int else float(element))
    if kind == 5:
        return scalar(draw.pick((2, 3, 0, -1, 1, 300, -300, 70_000, 2**40)))
    if kind == 6:
        return scalar(draw.pick((2.7, -2.7, 0.1, 300.5, 1e5, -0.0, 2.0**40)))
    return ScalarIr(Bool=draw.below(2) == 1) if draw.below(2) else ScalarIr(UInt=draw.pick((1, 0, 7, 255, 2**63 + 5)))


def dims(draw: Draw, low: int = 1, high: int = 5) -> Dims:
    """A shape of rank `low` to `high`; an axis of size 0 comes up now and then."""
    rank = draw.between(low, high)
    sizes = (2, 3, 1, 5, 4, 7) if rank < 4 else (2, 3, 1)
    return tuple(0 if draw.one_in(24) else draw.pick(sizes) for _ in range(rank))


def broadcastable(draw: Draw, whole: Dims) -> Dims:
    """A shape that broadcasts to `whole`: now and then an axis is 1."""
    return tuple(1 if draw.one_in(4) else size for size in whole)
