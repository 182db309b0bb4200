"""How long each operation of a program takes, by a trace of jax's profiler.

XLA fuses operations: one instruction may do the work of several. Its time is shared evenly among those whose
instructions it holds; `run_graph` has named them by their place.
"""

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import jax

_COMPUTATION: Final = re.compile(r"^(?:ENTRY )?%([\w.-]+) \(.*\{$")
_INSTRUCTION: Final = re.compile(r"^ +(?:ROOT )?%([\w.-]+) = ")
_PLACE: Final = re.compile(r'op_name="[^"]*?/[A-Z]\w*\.(\d+)(?:/|")')
_CALLED: Final = re.compile(r"(?:calls|to_apply|body|condition|branch_computations)=\{?((?:%[\w.-]+(?:, )?)+)")


def places(hlo: str) -> dict[str, tuple[int, ...]]:
    """The operations that each instruction of an HLO text does work of, by their places in the program, ascending.

    An instruction that calls a computation does the work of the instructions in it; one without a name is not listed.
    """
    inside: dict[str, set[int]] = defaultdict(set)
    found: dict[str, set[int]] = {}
    computation = ""
    for line in hlo.splitlines():
        if header := _COMPUTATION.match(line):
            computation = header[1]
        elif instruction := _INSTRUCTION.match(line):
            mine: set[int] = set()
            for names in _CALLED.findall(line):
                mine = mine.union(*(inside[name.strip("% ")] for name in names.split(",")))  # callees come first
            own = _PLACE.search(line)
            mine = mine or ({int(own[1])} if own else set())
            inside[computation] |= mine
            if mine:
                found[instruction[1]] = mine
    return {name: tuple(sorted(mine)) for name, mine in found.items()}


class Span(NamedTuple):
    """A stretch of time on one thread, in nanoseconds, in which an instruction ran."""

    start: float
    end: float
    instruction: str


def own_seconds(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds of each instruction on one thread, without what ran inside it.

    >>> own_seconds([Span(0, 9e9, "while"), Span(1e9, 3e9, "dot"), Span(4e9, 5e9, "dot")])
    {'while': 6.0, 'dot': 3.0}
    """
    total: dict[str, float] = defaultdict(float)
    around: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        while around and around[-1].end <= span.start:
            around.pop()
        if around:
            total[around[-1].instruction] -= (span.end - span.start) / 1e9
        total[span.instruction] += (span.end - span.start) / 1e9
        around.append(span)
    return dict(total)


def traced_seconds(run: Callable[[], object]) -> dict[str, float]:
    """Seconds of each instruction while `run` runs, which has to wait for the device itself."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        (trace,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(trace))
    total: dict[str, float] = defaultdict(float)
    for plane in data.planes:
        for line in plane.lines:
            spans: list[Span] = []
            for event in line.events:
                name = dict(event.stats).get("hlo_op")
                if name is not None:
                    spans.append(Span(event.start_ns, event.start_ns + event.duration_ns, str(name)))
            for name, seconds in own_seconds(spans).items():
                total[name] += seconds
    return dict(total)


def op_seconds(num_ops: int, instructions: Mapping[str, float], owners: Mapping[str, Sequence[int]]) -> list[float]:
    """Seconds of each operation of a program, from those of its instructions.

    >>> op_seconds(3, {"fusion": 4.0, "copy": 1.0}, {"fusion": (0, 2)})
    [2.0, 0.0, 2.0]
    """
    total = [0.0] * num_ops
    for name, seconds in instructions.items():
        for place in owners.get(name, ()):
            total[place] += seconds / len(owners[name])
    return total
