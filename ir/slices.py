"""Slices and what they select.

Source: burn-std `tensor/slice.rs`; the order of negative steps was checked against Burn 0.22.1.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ir.errors import ShapeError

Index = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class SliceRange(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """`start..end` by `step` along one axis; negative bounds count from the end, `None` is the end.

    A negative step walks the same window from its last element down.
    """

    start: Index
    end: Index | None
    step: Index


class Window(Struct, frozen=True, gc=False):
    """A slice laid on an axis: `count` elements from `start`, `step` apart, visited downward if `reverse`."""

    start: int
    count: int
    step: int
    reverse: bool

    @property
    def indices(self) -> range:
        """The visited indices, in order.

        >>> list(window(SliceRange(1, 8, -3), 10).indices)
        [7, 4, 1]
        """
        low = range(self.start, self.start + self.count * self.step, self.step)
        return low[::-1] if self.reverse else low


def window(item: SliceRange, size: int) -> Window:
    """The window of `item` on an axis of `size` elements. Bounds clamp and never fail.

    >>> window(SliceRange(-4, None, 2), 10), window(SliceRange(3, -20, 1), 10).count
    (Window(start=6, count=2, step=2, reverse=False), 0)

    Raises:
        ShapeError: the step is 0.
    """
    if item.step == 0:
        raise ShapeError("SliceRange.step: expected a step other than 0, got 0")
    start, end = _clamp(item.start, size), size if item.end is None else _clamp(item.end, size)
    step = abs(item.step)
    count = max(0, -((start - end) // step))
    reverse = item.step < 0
    if reverse and count:  # the top element is visited first, so the lowest one may lie above `start`
        start = end - 1 - (count - 1) * step
    return Window(start, count, step, reverse)


def windows(items: tuple[SliceRange, ...], dims: tuple[int, ...]) -> tuple[Window, ...]:
    """A window per axis of a tensor of shape `dims`; axes beyond `items` are taken whole."""
    whole = tuple(Window(0, size, 1, False) for size in dims[len(items) :])
    return tuple(window(item, size) for item, size in zip(items, dims, strict=False)) + whole


def split_ranges(items: tuple[SliceRange, ...], dims: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """What of `items` is static, and the starts that may become arguments of a program.

    A start can be traced where the step is 1; its length stays static. Every other slice is static as a whole.

    >>> split_ranges((SliceRange(2, 5, 1), SliceRange(0, None, -1)), (10, 4))
    ((3, Window(start=0, count=4, step=1, reverse=True)), (2,))

    Raises:
        ShapeError: a step is 0, or there are more ranges than axes.
    """
    if len(items) > len(dims):
        raise ShapeError(f"ranges: expected at most {len(dims)} for a tensor of rank {len(dims)}, got {len(items)}")
    static: list[Any] = []
    starts: list[int] = []
    for item, size in zip(items, dims, strict=False):
        laid = window(item, size)
        if laid.step == 1 and not laid.reverse:
            static.append(laid.count)
            starts.append(laid.start)
        else:
            static.append(laid)
    return tuple(static), tuple(starts)


def _clamp(index: int, size: int) -> int:
    return max(0, size + index) if index < 0 else min(index, size)
