"""Appends the operations of one session and decides when they run.

Promise: program order = record order; `flush` is idempotent.
"""

import math
import time
from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import Final

import jax

from ir.dtype import DType
from ir.errors import IrError, StreamError
from ir.graph import RegisteredGraph
from ir.op import Op
from ir.operation import GraphBindings, OperationIr
from ir.ops.control import AllReduce, Drop, Init, SyncCollective
from ir.segment import Cut, Limits, Segmenter
from ir.stream import Entry
from ir.tensor import READ_WRITE, Shape, TensorData, TensorId, TensorIr, TensorStatus
from ir.verify import Level, StreamVerifier
from jax_backend import host
from jax_backend.cache import ProgramCache
from jax_backend.handles import HandleTable
from jax_backend.program import Program, pending_program
from jax_backend.reads import ReadResult
from jax_backend.recorder_stats import RecorderStats
from jax_backend.rendezvous import Member, all_reduce
from jax_backend.rng import RandomState
from jax_backend.runner import Runner, Watch
from jax_backend.tensor import Tensor, TensorRecorder
from jax_backend.types import Device

_MAX_DROPPED: Final = 100_000
_APART: Final = frozenset({Drop, Init, AllReduce, SyncCollective})
"""Kinds that enter no program of one device. As a set: `isinstance` would cost 0.3 us more for every operation."""


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
        member: its part in collectives with other recorders; it decides the device.
        watch: sees each call of a compiled program, and makes it; by default it is only made.
        launch_ahead: make the calls of programs in a thread of their own, so that recording need not wait for them.
            By default where launching costs the processor much, which is off the CPU; never with `watch` or `eager`.
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
        member: Member | None = None,
        watch: Watch | None = None,
        launch_ahead: bool | None = None,
    ) -> None:
        self.device: Final = member.device if member else device or jax.devices()[0]
        self.cache: Final = ProgramCache() if cache is None else cache
        self.name: Final = name
        self.stats: Final = RecorderStats()
        self.handles: Final = HandleTable(max_bytes)
        self._member = member
        self._eager = eager
        self._verifier = None if verify is Level.off else StreamVerifier(verify)
        self._symbols = self.cache.symbols
        self._segmenter = Segmenter(self.cache.starting_with, limits)
        self._random = RandomState(seed)
        if launch_ahead is None:
            launch_ahead = self.device.platform != "cpu"
        self._runner = Runner(
            self.device,
            self.cache,
            self.handles,
            self._random,
            self.stats,
            name=name,
            eager=eager,
            watch=watch,
            launch_ahead=launch_ahead and not eager and watch is None,
        )
        self._graphs: dict[int, RegisteredGraph] = {}
        self._pending: list[Entry] = []
        self._pending_ops = 0
        self._next_look = 1 if eager else self._segmenter.limits.max_ops
        self._dropped: dict[int, int] = {}
        self._pending_ids: set[int] = set()
        self._num_looked_at = 0
        self._ids = count()

    @property
    def num_graphs(self) -> int:
        """How many graphs are registered."""
        return len(self._graphs)

    @property
    def num_pending(self) -> int:
        """How many operations are recorded and have not run."""
        return self._pending_ops

    # ---- recording

    def new_id(self) -> int:
        """A tensor id that this recorder has not handed out before."""
        return next(self._ids)

    def register_operation(self, operation: OperationIr | Op) -> None:
        """Append an operation, to run at the next read, sync or cut; what it raises shows at a read of its outputs."""
        op = operation.op if isinstance(operation, OperationIr) else operation
        if type(op) in _APART:
            self._register_apart(op)
            return
        try:
            if self._verifier is not None:
                self._verifier.check(op)
            entry = self._symbols.entry(op)
        except IrError as reason:
            self.fail([t.id.value for t in op.outputs], reason)
            self._free_failed(op)
            return
        # As `append`, without the call: this line runs once per operation of every client.
        self._pending.append(entry)
        self._pending_ops += 1
        if self._pending_ops >= self._next_look:
            self._look_for_cut()

    def _register_apart(self, op: Op) -> None:
        if isinstance(op, Drop):
            self.drop(op.tensor.id.value)
        elif isinstance(op, SyncCollective):
            self._runner.settle_next()
        elif isinstance(op, AllReduce):
            try:
                if self._verifier is not None:
                    self._verifier.check(op)
            except IrError as reason:
                self.fail([op.out.id.value], reason)
                self._free_failed(op)
            else:
                self._all_reduce(op)

    def _all_reduce(self, op: AllReduce) -> None:
        """Run what comes before, and hand the tensor over; the result is pending until every device has come."""
        self.flush()
        self.stats.operations += 1
        try:
            all_reduce(op, self._member, self.handles)
        except IrError as reason:
            self.fail([op.out.id.value], reason)
            self._free_failed(op)

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
            if entry.symbol.has_collective:
                self._append_each(entry)
            elif entry.symbol.weight:
                self.append(entry)
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
            self._runner.reported(reason)
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
        self._runner.sync()

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

    def fail(self, ids: Iterable[int], reason: IrError) -> None:
        """Mark tensors as failed; the first report of a failure is due at the read or sync that meets it."""
        self._runner.fail(ids, reason)

    def close(self) -> None:
        """Forget everything: pending operations, graphs, tensors."""
        self._clear_pending()
        self._graphs.clear()
        self._runner.clear()
        if self._member is not None:
            self._member.close()

    def program(self, *outputs: Tensor) -> Program:
        """What leads to `outputs` and has not run yet, as a function of the tensors that are there.

        Raises:
            StreamError: none is given, or one is computed already.
        """
        self.drop_unreachable()
        return pending_program(self._pending, [t.id for t in outputs], self.handles.array, self.cache, self.name)

    # ---- running

    def flush(self) -> None:
        """Run everything that is pending."""
        self.drop_unreachable()
        if self._pending:
            for cut in self._segmenter.cut([e.symbol for e in self._pending], at_end=True):
                self._run_first(cut)
        self._clear_pending()

    def append(self, entry: Entry) -> None:
        """Append an element of the stream that was taken apart before; nothing is checked."""
        self._pending.append(entry)
        self._pending_ops += entry.symbol.weight
        if self._pending_ops >= self._next_look:
            self._look_for_cut()

    def _append_each(self, entry: Entry) -> None:
        """Append a graph execution as single operations: a collective stands between programs."""
        inner: set[int] = set()
        for op in self._runner.concrete(entry):
            if isinstance(op, AllReduce):
                self._all_reduce(op)
            elif isinstance(op, SyncCollective):
                self._runner.settle_next()
            else:
                self.append(self._symbols.entry(op))
            inner.update(t.id.value for t in op.outputs)
        for id in inner.difference(entry.ids).union(entry.freed):
            self.drop(id)

    def _look_for_cut(self) -> None:
        """At each `max_ops` pending run what is known; at `hold`, decide. In eager mode run at once."""
        if self._eager:
            self.flush()
            return
        symbols = [e.symbol for e in self._pending]
        limits = self._segmenter.limits
        if self._pending_ops >= limits.hold:
            cuts = self._segmenter.cut(symbols, at_end=False)
        else:
            cuts = self._segmenter.known(symbols, at_end=False)
        for cut in cuts:
            self._run_first(cut)
        self._next_look = (self._pending_ops // limits.max_ops + 1) * limits.max_ops

    def _run_first(self, cut: Cut) -> None:
        length = cut.length
        entries, self._pending = self._pending[:length], self._pending[length:]
        self._pending_ops -= sum([e.symbol.weight for e in entries])
        dropped = {i: place for i, place in self._dropped.items() if place <= length}
        self._dropped = {i: place - length for i, place in self._dropped.items() if place > length}
        self._forget_looks()
        self._runner.run(entries, dropped, cut.rule)

    def _free_failed(self, op: Op) -> None:
        for t in op.inputs:
            if t.status is READ_WRITE:
                self.drop(t.id.value)

    def _is_pending(self, id: int) -> bool:
        # Uploads ask this; looking at each pending element once keeps a stream of uploads linear.
        for entry in islice(self._pending, self._num_looked_at, None):
            self._pending_ids.update(entry.ids)
        self._num_looked_at = len(self._pending)
        return id in self._pending_ids

    def _clear_pending(self) -> None:
        self._pending.clear()
        self._forget_looks()
        self._pending_ops = 0
        self._next_look = 1 if self._eager else self._segmenter.limits.max_ops
        for id in self._dropped:
            self.handles.free(id)
        self._dropped.clear()

    def _forget_looks(self) -> None:
        self._pending_ids.clear()
        self._num_looked_at = 0
