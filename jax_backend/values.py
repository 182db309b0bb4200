"""What functions take and give: arrays with names, and the rules by which an argument is accepted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer  # pyright: ignore[reportAttributeAccessIssue]

from ir.errors import DTypeError, ShapeError
from jax_backend.types import Array

Role: TypeAlias = Literal["tensor", "scalar", "start", "seed", "result"]
Arguments: TypeAlias = Mapping[str, Any]
Results: TypeAlias = dict[str, Array]

SEED: Final = "seed"
"""Name of the parameter of random programs: uint32[4], the seed and the draws before, low words first; or an int."""
_WORD: Final = 2**32


@dataclass(frozen=True)
class Value:
    """An argument or a result: its name, the array it is, and what it is to the program."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    role: Role = "tensor"
    largest: int | None = None
    """Of a slice start: the last place where the slice still fits."""

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{','.join(map(str, self.shape))}]"

    def aval(self, sharding: jax.sharding.Sharding | None = None) -> jax.ShapeDtypeStruct:
        """The abstract array."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype, sharding=sharding)


class Without(Mapping[str, Any]):
    """A mapping without some of its names; values are looked up when asked for."""

    def __init__(self, whole: Arguments, left_out: frozenset[str]) -> None:
        self._whole = whole
        self._left_out = left_out

    def __getitem__(self, name: str) -> Any:
        if name in self._left_out:
            raise KeyError(name)
        return self._whole[name]

    def __contains__(self, name: object) -> bool:
        return name not in self._left_out and name in self._whole

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._whole if name not in self._left_out)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def sole(items: tuple[Any, ...]) -> Any:
    """The only item, or all of them."""
    return items[0] if len(items) == 1 else items


def seed_words(seed: int, draws: int = 0) -> np.ndarray:
    """The state of random numbers from `seed` on, after `draws` draws: uint32[4], low words first.

    >>> seed_words(2**32 + 5, 3).tolist()
    [5, 1, 3, 0]
    """
    return np.array([seed % _WORD, seed // _WORD % _WORD, draws % _WORD, draws // _WORD % _WORD], np.uint32)


def advanced(state: Array, draws: np.uint32) -> Array:
    """The state of random numbers after `draws` more draws."""
    low = state[2] + draws
    return jnp.stack([state[0], state[1], low, state[3] + (low < draws).astype(jnp.uint32)])


def conformed(where: str, value: Value, given: Any) -> Any:
    """`given` as an array of the shape and dtype of `value`; arrays are not converted, numbers and lists are.

    Raises:
        ShapeError, DTypeError: it has another.
    """
    if value.role == "seed" and isinstance(given, int):
        return seed_words(given)
    if not isinstance(given, jax.Array | np.ndarray):
        given = np.asarray(given, value.dtype)
    if tuple(given.shape) != value.shape:
        raise ShapeError(f"{where}: expected shape {value.shape}, got {tuple(given.shape)}")
    if given.dtype != value.dtype:
        raise DTypeError(f"{where}: expected dtype {value.dtype}, got {given.dtype}; convert it with .astype")
    # A traced start cannot be looked at: XLA clamps it.
    if value.largest is not None and not isinstance(given, Tracer) and not 0 <= int(given) <= value.largest:
        raise ShapeError(f"{where}: expected a start of 0 to {value.largest}, got {int(given)}")
    return given


def with_axis(value: Value, axis: int, size: int) -> Value:
    """`value` with an axis of `size` more, at `axis` of the result."""
    place = axis if axis >= 0 else axis + len(value.shape) + 1
    shape = (*value.shape[:place], size, *value.shape[place:])
    return replace(value, shape=shape, largest=None)
