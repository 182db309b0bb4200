"""Where the time of a recorded session goes: by program, and by operation in two ways.

*Inside* is what an operation takes of the program that it runs in, by jax's profiler; XLA fuses operations, and what
several of them share is split evenly (`op_times`). *Alone* is a program of the one operation, on ones: the dispatch of
a call is in it, the fusion with others is not. An operation that costs more inside than alone is worth a look.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import jax
import numpy as np
from msgspec import Struct

from ir.op import Op
from ir.stream import Symbol, SymbolTable
from ir.wire.messages import RemoteMessage, TaskResponse
from jax_backend.cache import ProgramCache
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.differences import Tick
from jax_backend.program import Program
from jax_backend.recorder import Recorder
from jax_backend.runner import Call
from jax_backend.session_report import Report, Watcher, of_watched, play
from jax_backend.types import Device

_CALLS: Final = 5
"""Calls of an operation alone, of which the fastest counts."""


class OpTime(Struct):
    """An operation of a program, in seconds per run of the program."""

    program: int
    place: int
    kind: str
    output: str
    inside_s: float
    alone_s: float | None
    runs: int
    """Of its program."""


class KindTime(Struct):
    """All operations of a kind over the whole session, in seconds."""

    kind: str
    count: int
    inside_s: float
    alone_s: float | None


class Profile(Struct):
    """What a session takes."""

    report: Report
    ops: list[OpTime]

    def kinds(self) -> list[KindTime]:
        """The kinds, those that take most inside their programs first."""
        count, inside, alone = (
            defaultdict[str, int](int),
            defaultdict[str, float](float),
            defaultdict[str, float](float),
        )
        for op in self.ops:
            count[op.kind] += op.runs
            inside[op.kind] += op.inside_s * op.runs
            alone[op.kind] += (op.alone_s or 0.0) * op.runs
        is_measured = all(op.alone_s is not None for op in self.ops)
        made = [KindTime(k, count[k], inside[k], alone[k] if is_measured else None) for k in count]
        return sorted(made, key=lambda k: -k.inside_s)


class _Graphs:
    """Remembers the operations of each program that runs, and hands the call on."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher: Final = watcher
        self.ops: Final[list[tuple[Op, ...]]] = []

    def __call__(self, call: Call) -> Sequence[jax.Array]:
        known = len(self.watcher.programs)
        outputs = self.watcher(call)
        if len(self.watcher.programs) > known:
            self.ops.append(call.executable.graph.ops)
        return outputs


def profile(
    name: str,
    messages: Sequence[RemoteMessage | TaskResponse],
    device: Device | None = None,
    *,
    alone: bool = True,
    trace: Path | None = None,
    tick: Tick | None = None,
) -> Profile:
    """Run a session and measure it.

    Args:
        name: in reports.
        messages: the session.
        device: where; by default jax's first.
        alone: whether each operation is measured by itself too, which compiles each once.
        trace: folder for a trace of jax's profiler, of a second run in which nothing is compiled.
        tick: progress: how many operations were measured by themselves.

    Raises:
        ProtocolError: it asks for another server.
    """
    graphs = _Graphs(Watcher())
    cache = ProgramCache()
    recorder = Recorder(device, cache=cache, name=name, seed=0, watch=graphs)
    began = perf_counter()
    failures = play(messages, recorder)
    report = of_watched(graphs.watcher, recorder, perf_counter() - began, failures)
    if trace is not None:
        with jax.profiler.trace(str(trace)):
            play(messages, Recorder(device, cache=cache, name=name, seed=0))
    times = (
        _alone(graphs.ops, recorder.device, cache.custom_ops, tick) if alone else [[None] * len(g) for g in graphs.ops]
    )
    ops = [
        OpTime(row.number, place, op.kind, _type(op), measured.seconds, by_itself, row.runs)
        for row, graph, seconds in zip(report.programs, graphs.ops, times, strict=True)
        for place, (op, measured, by_itself) in enumerate(zip(graph, row.ops, seconds, strict=True))
    ]
    return Profile(report, ops)


def _alone(
    graphs: Sequence[Sequence[Op]], device: Device, custom_ops: CustomOpRegistry, tick: Tick | None
) -> list[list[float | None]]:
    """Seconds of each operation by itself; equal ones are measured once."""
    table, known = SymbolTable(), dict[Symbol, float]()
    found: list[list[float | None]] = []
    done = 0
    for graph in graphs:
        row: list[float | None] = []
        for op in graph:
            symbol = table.entry(op).symbol
            if symbol not in known:
                known[symbol] = seconds_alone(op, device, custom_ops)
            row.append(known[symbol])
            done += 1
            if tick:
                tick(done)
        found.append(row)
    return found


def seconds_alone(op: Op, device: Device, custom_ops: CustomOpRegistry) -> float:
    """The fastest of some calls of a program of `op` on ones."""
    program = Program.from_ops([op], [t.id.value for t in op.outputs], custom_ops=custom_ops)
    ones = {v.name: np.ones(v.shape, v.dtype) for v in program.inputs}
    compiled = program.compile(device)
    with jax.enable_x64(True):
        arguments = compiled.placed(**ones)
        jax.block_until_ready(compiled.stage(arguments))
        times: list[float] = []
        for _ in range(_CALLS):
            began = perf_counter()
            jax.block_until_ready(compiled.stage(arguments))
            times.append(perf_counter() - began)
    return min(times)


def _type(op: Op) -> str:
    return ", ".join(str(t).partition(" ")[2] for t in op.outputs)
