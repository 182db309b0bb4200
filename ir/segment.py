"""Where to cut an endless stream into programs, by content alone.

A read or a sync ends a segment. A loop that never reads has no such end, and a cut every N operations would fall at a
new place of the loop body each time: a new program, and a compilation, each time. So the place of a cut depends on
what is around it. The first rule that fits decides:

(a) *Known*: a chain of programs that exist already.
(b) *Repeat*: what is pending ends in a run of equal periods: a head, then one program per period.
(c) *Hash*: behind the operation at which the hash of the last 32 symbols is smallest.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from ir.dtype import StrEnum
from ir.stream import Symbol

HASH_WINDOW: Final = 32
SMALL: Final = 64
"""Operations under which a program is not worth a place in a chain, nor a period a program of its own."""

StartingWith = Callable[[Symbol], Sequence[tuple[Symbol, ...]]]


class Limits(NamedTuple):
    """Sizes in operations: programs of `min_ops` to `max_ops`; `hold` pending ones force a decision."""

    min_ops: int = 512
    max_ops: int = 2048
    hold: int = 8192


class Rule(StrEnum):
    """Why a program ends where it does."""

    KNOWN = "known"
    """A program of these operations exists already."""
    END = "end"
    """A read, a sync, or something that enters no program follows."""
    REPEAT = "repeat"
    """A period of a loop, or what comes before its first one, ends here."""
    HASH = "hash"
    """No loop was found; the content decides."""


class Cut(NamedTuple):
    """A program to make of what is pending: how many elements, and why they end there."""

    length: int
    rule: Rule


class Segmenter:
    """Cuts of one stream.

    Args:
        starting_with: symbols of the known programs that begin with a symbol, longest first.
        limits: sizes.
    """

    def __init__(self, starting_with: StartingWith, limits: Limits | None = None) -> None:
        self._starting_with = starting_with
        self._limits = limits or Limits()

    @property
    def limits(self) -> Limits:
        """The sizes in force."""
        return self._limits

    def known(self, symbols: Sequence[Symbol], *, at_end: bool) -> list[Cut]:
        """Rule (a): a chain of known programs from the start of `symbols`.

        The chain covers all of it, or, unless `at_end` asks for that, at least `min_ops` operations; empty if there
        is none.
        """
        chain, reaches_end = self._chain(symbols)
        if reaches_end or (not at_end and _weight(symbols[: sum(chain)]) >= self._limits.min_ops):
            return _cuts(chain, Rule.KNOWN)
        return []

    def cut(self, symbols: Sequence[Symbol], *, at_end: bool) -> list[Cut]:
        """The programs to make of `symbols`, from its start.

        With `at_end` (a read, a sync) they cover all of it; else (`hold` reached) a rest may stay pending.
        """
        cuts: list[Cut] = []
        place = 0
        while place < len(symbols):
            rest = symbols[place:]
            found = self._decide(rest, at_end=at_end)
            cuts += found
            place += sum([c.length for c in found])
            if not at_end and (not found or _weight(symbols[place:]) < self._limits.hold):
                break
        return cuts

    def _decide(self, symbols: Sequence[Symbol], *, at_end: bool) -> list[Cut]:
        chain, reaches_end = self._chain(symbols)
        if reaches_end or _weight(symbols[: sum(chain)]) >= self._limits.min_ops:
            return _cuts(chain, Rule.KNOWN)
        if at_end and _weight(symbols) <= self._limits.min_ops:
            return [Cut(len(symbols), Rule.END)]
        if repeat := self._repeat(symbols, at_end=at_end):
            return _cuts(repeat, Rule.REPEAT)
        if at_end and _weight(symbols) <= self._limits.max_ops:
            return [Cut(len(symbols), Rule.END)]
        return [Cut(self._hash_cut(symbols), Rule.HASH)]

    def _chain(self, symbols: Sequence[Symbol]) -> tuple[list[int], bool]:
        """The longest chain of known programs from the start, and whether it covers everything.

        Programs average `SMALL` operations or more, but for a head and a tail: a stream that was once read after each
        operation has left many tiny ones behind.
        """
        whole = tuple(symbols)
        totals = [0, *accumulate(s.weight for s in whole)]
        best: list[int] = []
        dead: set[int] = set()

        def extend(place: int, chain: list[int]) -> bool:
            nonlocal best
            if place == len(whole):
                best = list(chain)
                return True
            if place in dead:
                return False
            for known in self._starting_with(whole[place]):
                end = place + len(known)
                if end > len(whole) or len(chain) > 1 + totals[end] // SMALL:
                    continue
                if whole[place:end] == known:
                    chain.append(len(known))
                    if sum(chain) > sum(best):
                        best = list(chain)
                    if extend(end, chain):
                        return True
                    chain.pop()
            dead.add(place)
            return False

        reaches_end = extend(0, [])
        return best, reaches_end

    def _repeat(self, symbols: Sequence[Symbol], *, at_end: bool) -> list[int]:
        """Rule (b): lengths of a head and of the periods behind it; empty unless a run covers half of `symbols`."""
        period, run = longest_run(symbols)
        if not period:
            return []
        weight = _weight(symbols[-period:])
        period *= max(1, -(-SMALL // weight))
        if run < period or 2 * run < len(symbols):
            return []
        head = self._head(symbols, period, run, at_end=at_end)
        lengths = self._split(symbols[:head])
        while head + period <= len(symbols):
            lengths += self._split(symbols[head : head + period])
            head += period
        if at_end and head < len(symbols):
            lengths += self._split(symbols[head:])
        return lengths

    def _head(self, symbols: Sequence[Symbol], period: int, run: int, *, at_end: bool) -> int:
        """Where the periods begin: where a known program does, else so that the last one ends at the read."""
        first = len(symbols) - run
        for place in range(first, min(first + period, len(symbols) - period + 1)):
            for known in self._starting_with(symbols[place]):
                if (
                    len(known) >= min(period, self._limits.min_ops)
                    and tuple(symbols[place : place + len(known)]) == known
                ):
                    return place
        return first + run % period if at_end else first

    def _split(self, symbols: Sequence[Symbol]) -> list[int]:
        """`symbols` as one program, or cut by rule (c), always from its start, where it is too long for one."""
        lengths: list[int] = []
        while symbols and _weight(symbols) > self._limits.max_ops:
            length = self._hash_cut(symbols)
            lengths.append(length)
            symbols = symbols[length:]
        return [*lengths, len(symbols)] if symbols else lengths

    def _hash_cut(self, symbols: Sequence[Symbol]) -> int:
        """Rule (c): the length within the limits behind which the hash is smallest, the last one on a tie."""
        totals = list(accumulate(s.weight for s in symbols))
        allowed = [n for n, total in enumerate(totals) if self._limits.min_ops <= total <= self._limits.max_ops]
        if not allowed:  # a registered graph longer than all that is allowed is a program of its own
            return next((n for n, total in enumerate(totals) if total >= self._limits.min_ops), len(symbols) - 1) + 1
        return min(allowed, key=lambda n: (window_hash(symbols, n), -n)) + 1


def window_hash(symbols: Sequence[Symbol], place: int) -> int:
    """Hash of the `HASH_WINDOW` symbols that end at `place`; the same in every process."""
    value = 0
    for symbol in symbols[max(0, place + 1 - HASH_WINDOW) : place + 1]:
        value = (value * 0x9E3779B97F4A7C15 + symbol.digest) % 2**64
    return value ^ (value >> 29)


def longest_run(symbols: Sequence[Symbol]) -> tuple[int, int]:
    """Period and length of the longest run of at least two equal periods at the end of `symbols`, or (0, 0).

    By the prefix function of the reversed sequence, in linear time. Of runs of one length the shortest period counts.

    >>> longest_run("xyabcabcabc")
    (3, 9)
    """
    backward = symbols[::-1]
    prefix = [0] * len(backward)
    best = (0, 0)
    for n in range(1, len(backward)):
        k = prefix[n - 1]
        while k and backward[n] is not backward[k]:
            k = prefix[k - 1]
        prefix[n] = k + (backward[n] is backward[k])
        length, period = n + 1, n + 1 - prefix[n]
        if length >= 2 * period and length > best[1]:
            best = (period, length)
    return best


def _cuts(lengths: Sequence[int], rule: Rule) -> list[Cut]:
    return [Cut(length, rule) for length in lengths]


def _weight(symbols: Sequence[Symbol]) -> int:
    return sum([s.weight for s in symbols])
