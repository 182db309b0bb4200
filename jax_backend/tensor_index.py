"""What `[]` of a tensor selects: NumPy's indices as the slices of the IR."""

import operator
from types import EllipsisType
from typing import TypeAlias, cast

from ir.shapes import Dims
from ir.slices import SliceRange

Item: TypeAlias = "int | slice | EllipsisType | None"
Index: TypeAlias = "Item | tuple[Item, ...]"


def ranges_of(index: Index, dims: Dims) -> tuple[tuple[SliceRange, ...], Dims]:
    """A range per axis for `index` on a tensor of shape `dims`, and the shape of what it selects.

    >>> ranges_of((0, slice(None, None, -2)), (3, 5))
    ((SliceRange(start=0, end=1, step=1), SliceRange(start=0, end=5, step=-2)), (3,))

    Raises:
        IndexError: too many indices, or one out of range.
        TypeError: an index of another type.
    """
    items = index if isinstance(index, tuple) else (index,)
    places = [n for n, item in enumerate(items) if item is Ellipsis]
    missing = len(dims) - sum(item is not None and item is not Ellipsis for item in items)
    if missing < 0 or len(places) > 1:
        raise IndexError(f"expected at most {len(dims)} indices and one ellipsis, got {items}")
    at = places[0] if places else len(items)
    whole: tuple[Item, ...] = (slice(None),) * missing
    ranges: list[SliceRange] = []
    shape: list[int] = []
    for item in (*items[:at], *whole, *items[at + 1 :]):
        if item is None:
            shape.append(1)
            continue
        size = dims[len(ranges)]
        if isinstance(item, slice):
            visited = range(size)[item]
            low, high = sorted((visited[0], visited[-1])) if visited else (0, -1)
            # Burn walks the window low..high from its top where the step is negative.
            ranges.append(SliceRange(low, high + 1, visited.step))
            shape.append(len(visited))
        else:
            ranges.append(_single(item, size))
    return tuple(ranges), tuple(shape)


def _single(item: object, size: int) -> SliceRange:
    try:
        place = operator.index(cast("int", item))
    except TypeError:
        raise TypeError(f"expected ints, slices, ... or None, got {item!r}; use select, gather or mask_where") from None
    if not -size <= place < size:
        raise IndexError(f"index {place} is out of range for an axis of {size}")
    return SliceRange(place % size, place % size + 1, 1)
