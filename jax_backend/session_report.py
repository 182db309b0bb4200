"""What became of a recorded session: programs, why they end where they do, time and memory of each operation.

It is found by running the session; each program is run twice more under jax's profiler the first time.
"""

import math
import platform
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, Final

import jax
import jax.numpy as jnp
from msgspec import Struct, field

from ir.errors import IrError
from ir.op import Op, show_value, values
from ir.segment import Rule
from ir.stream import RelativeGraph
from ir.tensor import TensorIr
from ir.wire.messages import RemoteMessage, TaskResponse
from jax_backend import host
from jax_backend.cache import ProgramCache
from jax_backend.custom_ops import default_custom_ops
from jax_backend.executable import Config, Executable, abstract_arguments, abstract_value
from jax_backend.op_times import op_seconds, places, traced_seconds
from jax_backend.recorder import Recorder
from jax_backend.repeats import Block, fold, repeated_blocks
from jax_backend.replay import Read, replay
from jax_backend.runner import Call
from jax_backend.types import Device

RULES: Final = {
    Rule.END: "a read, a sync, a collective or the end follows",
    Rule.KNOWN: "a program of these operations exists already",
    Rule.REPEAT: "a period of a loop ends here",
    Rule.HASH: "no loop was found: the content decides",
}
"""Why a program ends where it does, for people."""

_TRACEBACKS: Final = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d.*\n)*\n?| stack_frame_id=\d+", re.MULTILINE
)
"""Where in this program an instruction was traced: paths of this machine, of no use to who reads the report."""


class OpRow(Struct):
    """An operation of a program; values are numbers of tensors in it."""

    kind: str
    fields: list[tuple[str, str]]
    """Names and values of everything that is no tensor."""
    inputs: list[int]
    outputs: list[int]
    num_bytes: int
    """Of its outputs."""
    live_bytes: int
    """Of all values that are there once it has run, were none fused away."""
    seconds: float = 0.0


class ProgramRow(Struct):
    """A compiled program."""

    number: int
    ops: list[OpRow]
    blocks: list[int | Block]
    """Places of the operations, with repeated blocks folded."""
    types: dict[int, str]
    """Type of each value, as `f32[2,3]`."""
    inputs: list[int]
    outputs: list[int]
    donated: list[int]
    """Inputs whose buffers it may reuse."""
    reason: str
    compile_s: float
    memory: dict[str, int]
    """Bytes by use, as XLA says."""
    flops: float
    hlo: str
    runs: int = 0
    run_s: float = 0.0


class Run(Struct, array_like=True):
    """One execution: which program, by which rule it ends, how long it took."""

    program: int
    rule: Rule
    seconds: float


class Report(Struct):
    """A session that was run."""

    name: str
    device: str
    versions: dict[str, str]
    operations: int
    reads: int
    total_s: float
    failures: list[str]
    programs: list[ProgramRow]
    runs: list[Run]
    timeline: list[int | Block]
    """Places of the runs, with repeated blocks folded."""
    rules: dict[Rule, str] = field(default_factory=lambda: dict(RULES))


class Watcher:
    """Watches the programs of a recorder: `Recorder(watch=Watcher())`."""

    def __init__(self) -> None:
        self.programs: Final[list[ProgramRow]] = []
        self.runs: Final[list[Run]] = []
        self._known: dict[Executable, ProgramRow] = {}

    def __call__(self, call: Call) -> Sequence[jax.Array]:
        """Make the call and wait for it; the first of a program is measured operation by operation."""
        row = self._known.get(call.executable)
        if row is None:
            row = self._known[call.executable] = program_row(len(self.programs), call.executable)
            self.programs.append(row)
            if row.number == 0:
                measure(row, call)  # the first trace of a process shows what starts with it, not the program
            measure(row, call)
        began = perf_counter()
        outputs = jax.block_until_ready(call.make())
        seconds = perf_counter() - began
        row.runs += 1
        row.run_s += seconds
        self.runs.append(Run(row.number, call.rule, seconds))
        return outputs


def report(name: str, messages: Iterable[RemoteMessage | TaskResponse], device: Device | None = None) -> Report:
    """Run a session and say what became of it.

    Raises:
        ProtocolError: it asks for another server.
    """
    watcher = Watcher()
    # No programs from disk: those of earlier versions do not name their instructions by operation.
    recorder = Recorder(device, cache=ProgramCache(), name=name, seed=0, watch=watcher)
    began = perf_counter()
    failures = play(messages, recorder)
    return of_watched(watcher, recorder, perf_counter() - began, failures)


def play(messages: Iterable[RemoteMessage | TaskResponse], recorder: Recorder) -> list[str]:
    """Run a session and wait for each of its reads. Returns what failed.

    Raises:
        ProtocolError: it asks for another server.
    """
    failures: list[str] = []
    for answer in replay(messages, recorder):
        try:
            if isinstance(answer, Read):
                host.block([answer.result.array()])
            elif answer.failure is not None:
                raise answer.failure
        except IrError as failure:
            failures.append(str(failure))
    recorder.flush()
    return failures


def graph_report(name: str, graph: RelativeGraph, device: Device | None = None) -> Report:
    """Run a program on zeros, once, and say what became of it.

    Args:
        name: in the report.
        graph: a program without scalars, slices and random numbers, as a Meganeura graph becomes one.
        device: where; by default jax's first.
    """
    chosen: Device = device or jax.devices()[0]
    began = perf_counter()
    config = Config(default_custom_ops(), jax.lax.Precision.HIGHEST, None)
    executable = Executable(graph, chosen, (), (), (), config)
    executable.reason, executable.compile_s = "a graph is one program", perf_counter() - began
    with jax.enable_x64(True), jax.default_device(chosen):
        avals = abstract_arguments(graph, executable.packer, chosen)
        inputs = [jnp.zeros(aval.shape, aval.dtype) for aval in avals]
    watcher = Watcher()
    watcher(Call(executable, inputs, None, Rule.END))
    return _report(name, watcher, chosen, len(graph.ops), 0, perf_counter() - began, [])


def of_watched(watcher: Watcher, recorder: Recorder, total_s: float, failures: list[str]) -> Report:
    """The report of what `watcher` has seen of `recorder`."""
    stats = recorder.stats
    return _report(recorder.name, watcher, recorder.device, stats.operations, stats.reads, total_s, failures)


def _report(
    name: str, watcher: Watcher, device: Device, operations: int, reads: int, total_s: float, failures: list[str]
) -> Report:
    return Report(
        name=name,
        device=f"{device} ({device.device_kind})",
        versions={"Python": platform.python_version(), "jax": jax.__version__},
        operations=operations,
        reads=reads,
        total_s=total_s,
        failures=failures,
        programs=watcher.programs,
        runs=watcher.runs,
        timeline=fold([(run.program, run.rule) for run in watcher.runs], shortest=4),
    )


def program_row(number: int, executable: Executable) -> ProgramRow:
    """What is known of a program before it runs."""
    graph, compiled = executable.graph, executable.compiled
    memory = compiled.memory_analysis()
    parts = ("argument", "output", "alias", "temp", "generated_code")
    costs: Any = compiled.cost_analysis() or {}
    return ProgramRow(
        number=number,
        ops=[op_row(op, live) for op, live in zip(graph.ops, live_bytes(graph), strict=True)],
        blocks=repeated_blocks(graph.ops),
        types={value: str(t).partition(" ")[2] for value, t in graph.tensors().items()},
        inputs=list(graph.inputs),
        outputs=list(graph.outputs),
        donated=[graph.inputs[n] for n in executable.donated],
        reason=executable.reason,
        compile_s=executable.compile_s,
        memory={part: int(getattr(memory, f"{part}_size_in_bytes", 0)) for part in parts},
        flops=float(costs.get("flops", 0.0)),
        hlo=_TRACEBACKS.sub("", compiled.as_text() or ""),
    )


def op_row(op: Op, live: int) -> OpRow:
    """What is known of an operation before it runs."""
    return OpRow(
        kind=op.kind,
        fields=[
            (f.path, "an argument" if f.is_lifted else show_value(value))
            for f, value in values(op)
            if not f.is_input and not f.is_output
        ],
        inputs=[t.id.value for t in op.inputs],
        outputs=[t.id.value for t in op.outputs],
        num_bytes=sum(map(num_bytes, op.outputs)),
        live_bytes=live,
    )


def num_bytes(tensor: TensorIr) -> int:
    """Bytes that a value takes on the device."""
    aval = abstract_value(tensor, None)
    return math.prod(aval.shape) * aval.dtype.itemsize


def live_bytes(graph: RelativeGraph) -> list[int]:
    """Bytes of the values that are there after each operation: made or given, and used later or returned."""
    sizes = {value: num_bytes(tensor) for value, tensor in graph.tensors().items()}
    last: dict[int, int] = defaultdict(lambda: -1)
    for place, op in enumerate(graph.ops):
        last.update((t.id.value, place) for t in (*op.inputs, *op.outputs))
    last.update(dict.fromkeys(graph.outputs, len(graph.ops)))
    ending: dict[int, list[int]] = defaultdict(list)
    for value, place in last.items():
        ending[place].append(value)
    found: list[int] = []
    live = sum(sizes[value] for value in graph.inputs)
    for place, op in enumerate(graph.ops):
        live += sum(sizes[t.id.value] for t in op.outputs) - sum(sizes[value] for value in ending[place])
        found.append(live)
    return found


def measure(row: ProgramRow, call: Call) -> None:
    """Fill in the seconds of each operation of a program, by running it on copies of what it consumes."""
    donated = set(call.executable.donated)

    def run() -> None:
        with jax.enable_x64(True):
            inputs = [jnp.copy(x) if n in donated else x for n, x in enumerate(call.inputs)]
        jax.block_until_ready(call._replace(inputs=inputs).make())

    run()
    seconds = op_seconds(len(row.ops), traced_seconds(run), places(row.hlo))
    for op, taken in zip(row.ops, seconds, strict=True):
        op.seconds = taken
