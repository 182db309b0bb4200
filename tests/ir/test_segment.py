"""Cuts of endless streams: few programs, whatever the length of the loop body and the rhythm of the reads."""

import random
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir.segment import Cut, Limits, Rule, Segmenter, longest_run


class Sign:
    """A stand-in for a symbol: an identity, a weight, a digest."""

    def __init__(self, name: int, weight: int = 1) -> None:
        self.weight = weight
        self.digest = random.Random(name).getrandbits(64)


class Stream:
    """Records signs as a recorder does, and keeps the programs that were made."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.programs: dict[tuple[Any, ...], None] = {}
        self.executions: list[tuple[Any, ...]] = []
        self.rules: list[Rule] = []
        self._segmenter = Segmenter(self._starting_with, limits)
        self._pending: list[Any] = []
        self._pending_ops = 0
        self._next_look = self._segmenter.limits.max_ops

    @classmethod
    def of(cls, signs: list[Sign]) -> "Stream":
        stream = cls()
        for sign in signs:
            stream.record(sign)
        stream.read()
        return stream

    def _starting_with(self, sign: Any) -> list[tuple[Any, ...]]:
        return sorted((p for p in self.programs if p[0] is sign), key=len, reverse=True)

    def record(self, sign: Any) -> None:
        self._pending.append(sign)
        self._pending_ops += sign.weight
        limits = self._segmenter.limits
        if self._pending_ops >= self._next_look:
            held = self._pending_ops >= limits.hold
            self._run(self._segmenter.cut(self._pending, at_end=False) if held else self._known())
            self._next_look = (self._pending_ops // limits.max_ops + 1) * limits.max_ops

    def _known(self) -> list[Cut]:
        return self._segmenter.known(self._pending, at_end=False)

    def read(self) -> None:
        self._run(self._segmenter.cut(self._pending, at_end=True))
        assert not self._pending
        self._next_look = self._segmenter.limits.max_ops

    def _run(self, cuts: list[Cut]) -> None:
        for length, rule in cuts:
            assert length > 0
            self.rules.append(rule)
            program = tuple(self._pending[:length])
            del self._pending[:length]
            self._pending_ops -= sum(s.weight for s in program)
            self.programs.setdefault(program)
            self.executions.append(program)


def signs(seed: int, count: int, kinds: int = 60, weight: int = 1) -> list[Sign]:
    """`count` signs drawn from `kinds`, as a training step repeats few kinds of operations."""
    draw = random.Random(seed)
    alphabet = [Sign(seed * 1000 + n, weight) for n in range(kinds)]
    return [draw.choice(alphabet) for _ in range(count)]


def loop(body_ops: int, rounds: int, read_every: int, preamble: int = 100) -> Stream:
    stream = Stream()
    for sign in signs(1, preamble):
        stream.record(sign)
    body = signs(2, body_ops)
    for n in range(1, rounds + 1):
        for sign in body:
            stream.record(sign)
        if read_every and n % read_every == 0:
            stream.read()
    stream.read()
    return stream


def test_a_loop_of_317_ops_that_never_reads_makes_at_most_4_programs() -> None:
    assert len(loop(317, 200, read_every=0).programs) <= 4


@pytest.mark.parametrize("body_ops", [101, 317, 1079])
@pytest.mark.parametrize("read_every", [1, 4, 16])
def test_a_loop_with_reads_makes_the_step_program_and_at_most_two_more(body_ops: int, read_every: int) -> None:
    assert len(loop(body_ops, 64, read_every).programs) <= 3


@pytest.mark.parametrize("body_ops", [40, 64, 150, 400, 700, 1500])
@pytest.mark.parametrize("read_every", [0, 1, 4, 16])
def test_bodies_of_any_length_settle_on_few_programs(body_ops: int, read_every: int) -> None:
    assert len(loop(body_ops, 96, read_every).programs) <= 4


@pytest.mark.parametrize("read_every", [0, 1, 4])
def test_a_body_of_5000_ops_is_split_the_same_way_each_round(read_every: int) -> None:
    assert len(loop(5000, 24, read_every).programs) <= 10


def test_each_cut_says_by_which_rule() -> None:
    unread = loop(317, 200, read_every=0)
    assert set(unread.rules) == {Rule.REPEAT, Rule.KNOWN}
    assert unread.rules[0] is Rule.REPEAT, "the first decision falls among many periods"
    read = loop(317, 6, read_every=1)
    assert read.rules == [Rule.END, *read.rules[1:]]
    assert read.rules[-4:] == [Rule.KNOWN] * 4
    assert set(Stream.of(signs(8, 9000, kinds=9000)).rules[:-1]) == {Rule.HASH}


def test_two_nested_loops_settle() -> None:
    stream = Stream()
    inner, outer = signs(3, 130), signs(4, 210)
    for _ in range(40):
        for _ in range(5):
            for sign in inner:
                stream.record(sign)
        for sign in outer:
            stream.record(sign)
    stream.read()
    assert len(stream.programs) <= 4


def test_steady_state_runs_programs_of_a_useful_size() -> None:
    stream = loop(40, 400, read_every=0)
    settled = stream.executions[len(stream.executions) // 2 :]
    assert min(sum(s.weight for s in program) for program in settled[:-1]) >= 64


def test_tiny_programs_of_an_earlier_phase_do_not_chop_up_a_long_segment() -> None:
    stream = Stream()
    step = signs(5, 600)
    for sign in step:
        stream.record(sign)
        stream.read()
    tiny = len(stream.executions)
    for _ in range(3):
        for sign in step:
            stream.record(sign)
        stream.read()
    assert len(stream.executions) - tiny <= 6


def test_graphs_are_glued_until_a_program_has_min_ops() -> None:
    stream = Stream()
    blocks = signs(6, 5, kinds=5, weight=90)
    for _ in range(100):
        for block in blocks:
            stream.record(block)
    stream.read()
    settled = stream.executions[len(stream.executions) // 2 : -1]
    assert all(sum(s.weight for s in program) >= 450 for program in settled)
    assert len(stream.programs) <= 4


def test_a_graph_longer_than_any_limit_is_a_program_of_its_own() -> None:
    stream = Stream(Limits(min_ops=8, max_ops=16, hold=64))
    stream.record(Sign(1, weight=500))
    stream.record(Sign(2, weight=500))
    stream.read()
    assert [len(p) for p in stream.executions] == [1, 1]


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.booleans(), max_size=60))
def test_cuts_keep_order_and_lose_nothing(names: list[int], reads: list[bool]) -> None:
    alphabet = [Sign(n, weight=1 + 3 * n) for n in range(4)]
    stream = Stream(Limits(min_ops=4, max_ops=9, hold=20))
    for n, name in enumerate(names):
        stream.record(alphabet[name])
        if n < len(reads) and reads[n]:
            stream.read()
    stream.read()
    assert [s for program in stream.executions for s in program] == [alphabet[n] for n in names]


@given(st.lists(st.integers(0, 2), max_size=40))
def test_longest_run_is_a_run_and_no_longer_one_exists(names: list[int]) -> None:
    alphabet = [Sign(n) for n in range(3)]
    sequence: list[Any] = [alphabet[n] for n in names]
    period, length = longest_run(sequence)
    best = max((run_length(names, p) for p in range(1, len(names) // 2 + 1)), default=0)
    assert length == best
    if length:
        assert run_length(names, period) == length


def run_length(names: list[int], period: int) -> int:
    """Length of the longest suffix of this period, 0 if it has not two of them; by definition."""
    length = period
    while length < len(names) and names[-1 - length] == names[-1 - length + period]:
        length += 1
    return length if length >= 2 * period else 0


def test_a_cut_does_not_depend_on_how_much_was_pending_before() -> None:
    limits = Limits(min_ops=64, max_ops=256, hold=100_000)
    sequence = signs(7, 2000, kinds=500)
    cuts = []
    for skipped in (0, 37):
        found = Segmenter(lambda _: (), limits).cut(sequence[skipped:], at_end=True)
        cuts.append({skipped + total for total in accumulate(cut.length for cut in found)})
    shared = cuts[0] & cuts[1]
    assert len(shared) >= len(cuts[0]) - 3
