"""Appends the operations of one session, decides when to run them, and runs them.

Promise: program order = record order; `flush` is idempotent; after an error the outputs of the failed operation are
marked failed with the reason, whatever depends on them too, and everything else lives on.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Final

import jax

from ir.dtype import DType
from ir.errors import IrError, ShapeError, StreamError, UnknownHandle
from ir.graph import RegisteredGraph
from ir.op import Op
from ir.operation import GraphBindings, OperationIr
from ir.ops.control import Drop, Init
from ir.segment import Limits, Segmenter
from ir.stream import Entry, Segment, concrete_ops, segment, survivors
from ir.tensor import READ_WRITE, Shape, TensorData, TensorId, TensorIr, TensorStatus
from ir.verify import Level, StreamVerifier
from jax_backend import host
from jax_backend.cache import ProgramCache
from jax_backend.eager import run_eagerly
from jax_backend.executable import abstract_value
from jax_backend.handles import HandleTable
from jax_backend.interpreter import OperationError
from jax_backend.ops._shared import precision
from jax_backend.reads import ReadResult
from jax_backend.rng import RandomState
from jax_backend.tensor import TensorRecorder
from jax_backend.types import Device

_INNER_IDS: Final = 1 << 63
"""Ids from here on are ours: what stays inside a registered graph, should it run operation by operation."""
_MAX_UNREPORTED: Final = 100
_MAX_DROPPED: Final = 100_000


@dataclass
class RecorderStats:
    """Counts of one recorder."""

    operations: int = 0
    """Operations recorded, those inside graph executions included, without Init and Drop."""
    programs: int = 0
    """Executions of a compiled program."""
    reads: int = 0
    failures: int = 0


class Recorder(TensorRecorder):
    """One session on one device: a stream in, arrays out.

    Args:
        device: where it runs; by default jax's first.
        cache: programs, shared between recorders that get the same one.
        eager: run each operation by itself, uncompiled, as it is recorded: slow, for finding faults; the same results.
        verify: how much of the stream is checked.
        name: the stream, in reports.
        seed: of the random state; by default it is drawn.
        limits: sizes of programs, see `ir.segment`.
        max_bytes: of live tensors and of what a program makes beside them; by default no limit.
    """

    def __init__(
        self,
        device: Device | None = None,
        *,
        cache: ProgramCache | None = None,
        eager: bool = False,
        verify: Level = Level.off,
        name: str = "stream",
        seed: int | None = None,
        limits: Limits | None = None,
        max_bytes: float = math.inf,
    ) -> None:
        self.device: Final = device or jax.devices()[0]
        self.cache: Final = ProgramCache() if cache is None else cache
        self.name: Final = name
        self.stats: Final = RecorderStats()
        self.handles: Final = HandleTable(max_bytes)
        self._eager = eager
        self._verifier = None if verify is Level.off else StreamVerifier(verify)
        self._symbols = self.cache.symbols
        self._segmenter = Segmenter(self.cache.starting_with, limits)
        self._random = RandomState(seed)
        self._graphs: dict[int, RegisteredGraph] = {}
        self._pending: list[Entry] = []
        self._pending_ops = 0
        self._next_look = 1 if eager else self._segmenter.limits.max_ops
        self._dropped: dict[int, int] = {}
        self._unreported: list[IrError] = []
        self._ids = count()
        self._inner_ids = count(_INNER_IDS)

    @property
    def num_graphs(self) -> int:
        """How many graphs are registered."""
        return len(self._graphs)

    # ---- recording

    def new_id(self) -> int:
        """A tensor id that this recorder has not handed out before."""
        return next(self._ids)

    def register_operation(self, operation: OperationIr | Op) -> None:
        """Append an operation, to run at the next read, sync or cut; what it raises shows at a read of its outputs."""
        op = operation.op if isinstance(operation, OperationIr) else operation
        if isinstance(op, Drop):
            self.drop(op.tensor.id.value)
            return
        if isinstance(op, Init):
            return
        try:
            if self._verifier is not None:
                self._verifier.check(op)
            entry = self._symbols.entry(op)
        except IrError as reason:
            self.fail([t.id.value for t in op.outputs], reason)
            self._free_failed(op)
            return
        # As `_append`, without the call: this line runs once per operation of every client.
        self._pending.append(entry)
        self._pending_ops += 1
        if self._pending_ops >= self._next_look:
            self._look_for_cut()

    def register_graph(self, graph_id: int, operations: Sequence[OperationIr | Op]) -> None:
        """Keep a relative graph under `graph_id`, in place of the one that had it."""
        ops = [o.op if isinstance(o, OperationIr) else o for o in operations]
        self._graphs[graph_id] = RegisteredGraph(ops)

    def execute_graph(self, graph_id: int, bindings: GraphBindings) -> None:
        """Append an execution of a registered graph.

        An unknown graph, or bindings that do not fit it, fail the outputs that the bindings name.
        """
        graph = self._graphs.get(graph_id)
        try:
            if graph is None:
                raise StreamError(f"ExecuteGraph.graph_id: no graph is registered under {graph_id}")
            entry = graph.entry(bindings, self.cache.symbols)
            if self._verifier is not None:
                self._verifier.check_entry(entry)
        except IrError as reason:
            known = [pair[1].value for pair in bindings.tensors]
            self.fail([i for i in known if i not in self.handles and not self._is_pending(i)], reason)
        else:
            if entry.symbol.weight:
                self._append(entry)
            for freed in entry.freed if not entry.symbol.weight else ():
                self.drop(freed)

    def register_tensor_data(self, data: TensorData) -> TensorIr:
        """Bring data to the device under a fresh id."""
        id = self.new_id()
        self.register_tensor_data_id(id, data)
        return TensorIr(TensorId(id), Shape(data.shape), TensorStatus.ReadOnly, data.dtype)

    def register_tensor_data_id(self, id: int, data: TensorData) -> None:
        """Bring data to the device under `id`. The bytes may be shared with the device: they are never to change.

        Raises:
            MemoryLimit: they are more than this recorder may hold.
        """
        self.handles.reserve(memoryview(data.bytes).nbytes)
        self._define(id, host.to_device(data, self.device), pinned=False)

    def register_handle(self, id: int, array: jax.Array) -> None:
        """Let `id` name an array that is on this recorder's device already, or is moved there without the host."""
        here = array.devices() == {self.device}
        self._define(id, array if here else jax.device_put(array, self.device), pinned=here)

    def _define(self, id: int, array: jax.Array, *, pinned: bool) -> None:
        if id in self.handles or self._is_pending(id):
            self.flush()
        self.handles.put(id, array, pinned=pinned)
        if self._verifier is not None:
            self._verifier.define(id)

    def register_alias(self, new: int, source: int) -> None:
        """Let `new` name what `source` names. A source that is not computed yet ends the segment.

        Raises:
            UnknownHandle: no tensor has the id `source`.
        """
        if source not in self.handles or self._is_pending(new):
            self.flush()
        self.handles.alias(new, source)
        if self._verifier is not None:
            self._verifier.define(new)

    def drop(self, id: int) -> None:
        """Forget a tensor; one that is gone already is no error."""
        if self._verifier is not None:
            self._verifier.drop(id)
        if self._pending:
            self._dropped[id] = len(self._pending)
            if len(self._dropped) > _MAX_DROPPED:
                self.flush()
        else:
            self.handles.free(id)

    def seed(self, value: int) -> None:
        """Start the random numbers over, from this point of the stream on."""
        self.flush()
        self._random.seed(value)

    # ---- reading

    def read_tensor(self, tensor: TensorIr) -> ReadResult:
        """Run what is pending and begin to read a tensor; a ReadWrite read is its last use."""
        self.flush()
        self.stats.reads += 1
        id = tensor.id.value
        try:
            result = ReadResult(tensor, self.handles.pinned(id))
        except IrError as reason:
            result = ReadResult(tensor, None, reason)
            if reason in self._unreported:
                self._unreported.remove(reason)
        if tensor.status is READ_WRITE:
            self.handles.free(id)
        return result

    def take_handle(self, tensor: TensorIr) -> jax.Array:
        """The array of a tensor, on its device, for another recorder; a ReadWrite use is its last.

        Raises:
            IrError: the tensor is unknown or failed.
        """
        return self.read_tensor(tensor).array()

    def sync(self) -> None:
        """Run what is pending and wait for the device.

        Raises:
            IrError: the first failure that no sync has reported yet.
        """
        self.flush()
        arrays = [b.array for i in self.handles.ids() if (b := self.handles.get(i)) is not None and b.array is not None]
        try:
            host.block(arrays)
        except IrError as reason:
            self._unreported.append(reason)
        if self._unreported:
            raise self._unreported.pop(0)

    def dtype_usage(self, dtype: DType) -> frozenset[str]:
        """What the device does with a dtype: `storage`, `arithmetic`, `accelerated`."""
        if dtype.is_quantized:
            return frozenset({"storage"})
        accelerated = dtype.is_float and self.device.platform != "cpu" and dtype.size_bytes < 8
        return frozenset({"storage", "arithmetic", *(["accelerated"] if accelerated else [])})

    def profile_start(self) -> float:
        """Begin a measurement: waits for the device; the token is for `profile_end`.

        Raises:
            IrError: as `sync`.
        """
        self.sync()
        return time.perf_counter()

    def profile_end(self, token: float) -> float:
        """Seconds since `profile_start`, with all work recorded in between done.

        Raises:
            IrError: as `sync`.
        """
        self.sync()
        return time.perf_counter() - token

    def close(self) -> None:
        """Forget everything: pending operations, graphs, tensors."""
        self._clear_pending()
        self._graphs.clear()
        self._unreported.clear()
        self.handles.clear()

    # ---- running

    def flush(self) -> None:
        """Run everything that is pending."""
        self.drop_unreachable()
        if self._pending:
            for length in self._segmenter.cut([e.symbol for e in self._pending], at_end=True):
                self._run_first(length)
        self._clear_pending()

    def _append(self, entry: Entry) -> None:
        self._pending.append(entry)
        self._pending_ops += entry.symbol.weight
        if self._pending_ops >= self._next_look:
            self._look_for_cut()

    def _look_for_cut(self) -> None:
        """At each `max_ops` pending run what is known; at `hold`, decide. In eager mode run at once."""
        if self._eager:
            self.flush()
            return
        symbols = [e.symbol for e in self._pending]
        limits = self._segmenter.limits
        if self._pending_ops >= limits.hold:
            lengths = self._segmenter.cut(symbols, at_end=False)
        else:
            lengths = self._segmenter.known(symbols, at_end=False)
        for length in lengths:
            self._run_first(length)
        self._next_look = (self._pending_ops // limits.max_ops + 1) * limits.max_ops

    def _run_first(self, length: int) -> None:
        entries, self._pending = self._pending[:length], self._pending[length:]
        num_ops = sum([e.symbol.weight for e in entries])
        self._pending_ops -= num_ops
        self.stats.operations += num_ops
        dropped = {i: place for i, place in self._dropped.items() if place <= length}
        self._dropped = {i: place - length for i, place in self._dropped.items() if place > length}
        self._run(entries, dropped)
        for id in dropped:
            self.handles.free(id)

    def _run(self, entries: list[Entry], dropped: dict[int, int]) -> None:
        """Run `entries` as one program; where something fails, all that does not depend on it runs all the same."""
        while entries:
            if self.handles.num_failed and not (entries := self._without_failed(entries)):
                return
            try:
                if self._eager:
                    with precision(self.cache.precision):
                        self._run_eager(entries)
                else:
                    self._run_compiled(entries, dropped)
            except OperationError as error:
                entries = self._without_culprit(entries, error)
            except Exception as reason:
                if len(kept := self._without_failed(entries)) == len(entries):
                    # The compiler or the device: they name no operation.
                    error = reason if isinstance(reason, IrError) else IrError(f"{self.name}: {reason}")
                    self.fail(chain.from_iterable(e.outputs for e in entries), error)
                    return
                entries = kept
            else:
                return

    def _run_compiled(self, entries: list[Entry], dropped: dict[int, int]) -> None:
        part = segment(entries)
        ids = part.bindings.ids
        numbers = part.numbers
        kept = survivors(part, dropped)
        starts = part.bindings.starts

        def ends(value: int) -> bool:
            """Whether this segment uses a value for the last time."""
            return ids[value] in part.consumed or ids[value] in dropped

        outputs = frozenset([numbers[i] for i in kept])
        executable = self.cache.get(part.key, outputs, starts, ends, self.device, self.name)
        self.handles.reserve(executable.new_bytes)
        inputs = self._inputs([ids[n] for n in executable.graph.inputs])
        for position in executable.donated:
            value = executable.graph.inputs[position]
            buffer = self.handles.get(ids[value])
            if not ends(value) or buffer is None or buffer.owners > 1:
                inputs[position] = host.copy(inputs[position])
        packer = executable.packer
        pack = None
        if packer.num_words:
            moving = [s for s, t in zip(starts, executable.traced, strict=True) if t]
            key = self._random.take(executable.graph.num_random) if executable.graph.num_random else ()
            pack = packer.pack(part.bindings.scalars, moving, key)
        results = executable(inputs, pack)
        self.stats.programs += 1
        wanted = set(kept)
        self._settle(
            part, {ids[n]: a for n, a in zip(executable.graph.outputs, results, strict=True) if ids[n] in wanted}
        )

    def _run_eager(self, entries: list[Entry]) -> None:
        part = segment(entries)
        made_inside: set[int] = set()
        inputs: dict[int, jax.Array] = {}
        for entry in entries:
            outside = [i for i in entry.inputs if i not in made_inside]
            inputs.update(zip(outside, self._inputs(outside), strict=True))
            made_inside.update(entry.outputs)
        made = run_eagerly(part, inputs, self._random, self.device, self.cache.custom_ops)
        self._settle(part, {i: made[i] for i in survivors(part)})

    def _settle(self, part: Segment, made: dict[int, jax.Array]) -> None:
        self.handles.free_all(part.consumed.keys())
        for id, array in made.items():
            self.handles.put(id, array)

    def _inputs(self, ids: list[int]) -> list[jax.Array]:
        buffers = [self.handles.get(i) for i in ids]
        arrays = [b.array for b in buffers if b is not None and b.array is not None]
        if len(arrays) != len(ids):
            raise UnknownHandle(f"{self.name}: an input of a program is missing")
        return arrays

    # ---- failing

    def _without_failed(self, entries: list[Entry]) -> list[Entry]:
        """`entries` without those whose inputs failed, never were, or are not what they declare; their outputs fail."""
        kept: list[Entry] = []
        made: set[int] = set()
        waiting = entries[::-1]
        while waiting:
            entry = waiting.pop()
            reason = self._fault(entry, made)
            if reason is None:
                kept.append(entry)
                made.update(entry.outputs)
            elif entry.symbol.weight > 1:
                waiting += self._expand(entry)[::-1]
            else:
                self._give_up(entry, reason)
                made.difference_update(entry.outputs)
        return kept

    def _fault(self, entry: Entry, made: set[int]) -> IrError | None:
        """Why an input of `entry` cannot be used; `made` are the ids that come from the same program."""
        described = {t.id.value: t for op in entry.symbol.ops for t in op.inputs}
        for place, id in enumerate(entry.inputs):
            if id in made:
                continue
            where = f"{entry.symbol.ops[0].kind}: input t{id}"
            buffer = self.handles.get(id)
            if buffer is None:
                return UnknownHandle(f"{where} was never made, or its last use is past")
            if buffer.array is None:
                return buffer.failure
            expected = abstract_value(described[place], None) if place in described else buffer.array
            if (buffer.array.shape, buffer.array.dtype) != (expected.shape, expected.dtype):
                return ShapeError(
                    f"{where} is declared as {expected.dtype}{list(expected.shape)}, "
                    f"but is {buffer.array.dtype}{list(buffer.array.shape)}"
                )
        return None

    def _without_culprit(self, entries: list[Entry], error: OperationError) -> list[Entry]:
        """`entries` without the one that `error` names."""
        place = error.position
        for n, entry in enumerate(entries):
            if place < entry.symbol.weight:
                if entry.symbol.weight > 1:
                    expanded = self._expand(entry)
                    self._give_up(expanded.pop(place), error)
                    return [*entries[:n], *expanded, *entries[n + 1 :]]
                self._give_up(entry, error)
                return entries[:n] + entries[n + 1 :]
            place -= entry.symbol.weight
        raise AssertionError("an operation error names an operation of its program")

    def _expand(self, entry: Entry) -> list[Entry]:
        """A graph execution as single operations."""
        return [self.cache.symbols.entry(op) for op in concrete_ops(entry, self._inner_ids)]

    def _give_up(self, entry: Entry, reason: IrError) -> None:
        for id in entry.freed:
            self.handles.free(id)
        self.fail(entry.outputs, reason)

    def fail(self, ids: Iterable[int], reason: IrError) -> None:
        """Mark tensors as failed; the first report of a failure is due at the read or sync that meets it."""
        for id in ids:
            self.handles.fail(id, reason)
        if reason not in self._unreported:
            self._unreported.append(reason)
            del self._unreported[_MAX_UNREPORTED:]
            self.stats.failures += 1

    def _free_failed(self, op: Op) -> None:
        for t in op.inputs:
            if t.status is READ_WRITE:
                self.drop(t.id.value)

    def _is_pending(self, id: int) -> bool:
        return any(id in entry.ids for entry in self._pending)

    def _clear_pending(self) -> None:
        self._pending.clear()
        self._pending_ops = 0
        self._next_look = 1 if self._eager else self._segmenter.limits.max_ops
        for id in self._dropped:
            self.handles.free(id)
        self._dropped.clear()
