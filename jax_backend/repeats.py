"""Folds a sequence that repeats itself into blocks: the layers of a network, the steps of a training."""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from ir.op import Op

FOLDED_OPS: Final = 6
"""Operations that a run of equal blocks has at least to be folded."""


class Block(NamedTuple):
    """The elements from `start` on, `times` times in a row; `body` folds the first of them."""

    start: int
    length: int
    times: int
    body: "list[int | Block]"


def fold(sequence: Sequence[Hashable], *, shortest: int = 1, longest: int = 1024) -> "list[int | Block]":
    """Places of `sequence`, with runs of equal stretches folded, the one that covers most first.

    Args:
        sequence: what is compared.
        shortest: elements that a run has at least, all its rounds together.
        longest: elements of a stretch at most.

    >>> fold("xabab")
    [0, Block(start=1, length=2, times=2, body=[1, 2])]
    """
    numbers: dict[Hashable, int] = {}
    names = [numbers.setdefault(item, len(numbers)) for item in sequence]
    return _fold(names, 0, len(names), shortest, longest)


def repeated_blocks(ops: Sequence[Op]) -> "list[int | Block]":
    """Places of `ops`, with runs of blocks folded whose kinds and outputs' types are equal."""
    return fold([(op.kind, tuple((t.shape, t.dtype) for t in op.outputs)) for op in ops], shortest=FOLDED_OPS)


def _fold(names: list[int], start: int, end: int, shortest: int, longest: int) -> "list[int | Block]":
    folded: list[int | Block] = []
    while start < end:
        length, count = _best(names, start, end, longest)
        if count > 1 and length * count >= shortest:
            folded.append(Block(start, length, count, _fold(names, start, start + length, shortest, length // 2)))
            start += length * count
        else:
            folded.append(start)
            start += 1
    return folded


def _best(names: list[int], start: int, end: int, longest: int) -> tuple[int, int]:
    """Length and count of the run at `start` that covers most; of equal ones that of the shortest stretch."""
    best = (1, 1)
    place = start
    for _ in range(end - start):
        try:
            place = names.index(names[start], place + 1, min(end, start + longest + 1))
        except ValueError:
            break
        length = place - start
        count = _count(names, start, end, length)
        if count > 1 and length * count > best[0] * best[1]:
            best = (length, count)
    return best


def _count(names: list[int], start: int, end: int, length: int) -> int:
    count = 1
    stretch = names[start : start + length]
    while (
        start + (count + 1) * length <= end and names[start + count * length : start + (count + 1) * length] == stretch
    ):
        count += 1
    return count
