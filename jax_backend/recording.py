"""A session in single assignment: every tensor has one number for good, so that any stretch of it is a program.

    recording = Recording.load("training.bxs")
    recording.spans()                       # the programs that a recorder would make of it, and why it cuts there
    recording.program(recording.spans()[1])

Graph executions stand as their operations, aliases and hand-overs are resolved, and `Init` and `Drop` are gone: `ends`
says where a tensor ends. A tensor keeps its id unless the id was used before.

Promise: nothing runs until an input that was computed earlier is asked for.
"""

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import count, groupby, pairwise
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from ir.errors import ProtocolError, StreamError, UnknownHandle
from ir.op import Op, map_operands
from ir.operation import operation
from ir.ops.control import AllReduce, Drop, Init
from ir.segment import Segmenter
from ir.stream import Symbol, SymbolTable, build_graph, segment
from ir.tensor import NOT_INIT, READ_ONLY, READ_WRITE, TensorData, TensorId, TensorIr
from ir.wire.capture import read_messages, write_messages
from ir.wire.messages import (
    Close,
    ExecuteGraph,
    ExposeTensorLocal,
    ExposeTensorRemote,
    ReadTensor,
    RegisterAlias,
    RegisterAndExecuteGraph,
    RegisterOperation,
    RegisterTensor,
    RegisterTensorLocal,
    RegisterTensorRemote,
    RemoteMessage,
    Seed,
    SessionInit,
    SyncBackend,
    TaskResponse,
    TaskResponseContent,
    TensorResult,
)
from ir.wire.release import PROTOCOL_2
from ir.wire.values import SessionId, StreamId
from jax_backend.inspection import INNER_IDS, Expansion
from jax_backend.program import Program
from jax_backend.recorder import Recorder
from jax_backend.replay import recorded_reads
from jax_backend.values import seed_words

_STREAM: Final = StreamId(0)


class Read(NamedTuple):
    """A tensor that was read after `place` operations, and the answer, where one was recorded."""

    place: int
    request: int
    tensor: TensorIr
    answer: TensorResult | None


class Boundary(NamedTuple):
    """Where a program has to end, after `place` operations, and why: `read`, `sync`, `seed`, `all_reduce`, `end`."""

    place: int
    reason: str


class Span(NamedTuple):
    """Operations `start` to `stop` of a recording, made one program; `reason` says why it ends there.

    Executions of the same program have the same `program` number.
    """

    start: int
    stop: int
    reason: str
    program: int


class Recording:
    """What a session did, as operations on tensors that are written once.

    `ops` are in order, with their inputs read-only; `data` what was uploaded, by id; `reads`, `boundaries` and `seeds`
    (place, seed) in order; `ends` the number of operations before a tensor's last name went.
    """

    def __init__(self) -> None:
        self.ops: Final[list[Op]] = []
        self.data: dict[int, TensorData] = {}
        self.reads: Final[list[Read]] = []
        self.boundaries: Final[list[Boundary]] = []
        self.seeds: Final[list[tuple[int, int]]] = []
        self.ends: Final[dict[int, int]] = {}
        self.names: Final[dict[int, str]] = {}
        self.made: Final[dict[int, int]] = {}
        """Place of the operation that makes a tensor, by id."""
        self._last_use: dict[int, int] = {}
        self._lifetimes: list[list[int]] = []

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Recording":
        """The session in a file, a capture (`.bxs`) or JSON lines.

        Raises:
            WireError: the file is neither.
            StreamError: a graph is executed that was not registered.
            UnknownHandle: a tensor is used that was never made, or after its last use.
            ProtocolError: it takes tensors from another server.
            OSError: the file cannot be read.
        """
        messages = list(read_messages(path))
        return _Reader(messages).recording

    def _repr_html_(self) -> str:
        from jax_backend.notebook import recording_html

        return recording_html(self)

    # ---- adding

    def append(self, op: Op) -> None:
        """Add an operation; each output is new."""
        place = len(self.ops)
        if isinstance(op, AllReduce):
            self.cut("all_reduce")
        self.ops.append(op)
        for tensor in op.inputs:
            self._last_use[tensor.id.value] = place
        for tensor in op.outputs:
            self.made[tensor.id.value] = place
        if isinstance(op, AllReduce):
            self.cut("all_reduce")

    def cut(self, reason: str) -> None:
        """Programs end here."""
        if not self.boundaries or self.boundaries[-1].place < len(self.ops):
            self.boundaries.append(Boundary(len(self.ops), reason))

    def read(self, tensor: TensorIr, data: TensorData | None = None) -> None:
        """A tensor is read, and `data` comes."""
        answer = None if data is None else TensorResult(Ok=data)
        kept = replace(tensor, status=READ_ONLY)
        self.reads.append(Read(len(self.ops), len(self.reads) + 1, kept, answer))
        self.cut("read")

    def end(self, id: int) -> None:
        """A tensor is not used any more."""
        self.ends[id] = len(self.ops)

    # ---- programs

    def outputs(self, start: int, stop: int) -> list[int]:
        """Ids that operations `start` to `stop` make for others: read, used later, or alive afterwards."""
        read = {r.tensor.id.value for r in self.reads}
        made = [t.id.value for op in self.ops[start:stop] for t in op.outputs]

        def is_wanted(id: int) -> bool:
            return id in read or self._last_use.get(id, -1) >= stop or self.ends.get(id, stop + 1) > stop

        return [id for id in made if is_wanted(id)]

    def program(self, span: "Span | slice | range", outputs: Sequence[int] | None = None, **options: Any) -> Program:
        """A stretch of the recording as a program; its inputs have the values that they had in the session.

        Args:
            span: which operations.
            outputs: ids that come out; by default those of `outputs`.
            options: as for `Program`.

        Raises:
            StreamError: the stretch is empty, or the session starts its random numbers over within it.
        """
        start, stop = self._bounds(span)
        table = SymbolTable()
        part = segment([table.entry(op) for op in self.ops[start:stop]])
        wanted = self.outputs(start, stop) if outputs is None else outputs
        graph = build_graph(*part.key, [part.numbers[id] for id in wanted])
        if graph.num_random:
            options.setdefault("seed", self._random_state(start, stop))
        ids = [part.bindings.ids[n] for n in graph.inputs]
        options.setdefault("name", f"ops {start} to {stop}")
        return Program(graph, part.bindings, data=_Values(self, start, ids), names=self.names, **options)

    def last_used_at(self, place: int) -> list[int]:
        """Ids that nothing uses after the operation at `place`."""
        if len(self._lifetimes) != len(self.ops):
            self._lifetimes = [list[int]() for _ in self.ops]
            for id, made in self.made.items():
                self._lifetimes[max(made, self._last_use.get(id, made))].append(id)
        return self._lifetimes[place] if place >= 0 else []

    def with_data(self, id: int, data: TensorData) -> "Recording":
        """A recording of the same operations, in which `id` was uploaded as `data`."""
        other = copy(self)
        other.data = {**self.data, id: data}
        return other

    def messages(self) -> Iterator[RemoteMessage | TaskResponse]:
        """The session as a client sends it, with the recorded answers."""
        yield SessionInit(PROTOCOL_2.protocol, SessionId(0), 0, b"")
        for id, data in self.data.items():
            yield RegisterTensor(_STREAM, TensorId(id), data)
        seeds, reads = dict(self.seeds), {place: list(group) for place, group in groupby(self.reads, lambda r: r.place)}
        for place in range(len(self.ops) + 1):
            for read in reads.get(place, ()):
                yield ReadTensor(read.request, _STREAM, read.tensor)
                if read.answer is not None:
                    yield TaskResponse(TaskResponseContent(ReadTensor=read.answer), read.request)
            if place in seeds:
                yield Seed(seeds[place])
            if place < len(self.ops):
                yield RegisterOperation(_STREAM, operation(self.ops[place]))
        yield Close(SessionId(0))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the session to a capture (`.bxs`); tensors live until its end."""
        write_messages(path, self.messages(), "burn-xla recording")

    def spans(self) -> list[Span]:
        """The programs that a recorder makes of the session, in order, and why each ends where it does."""
        table = SymbolTable()
        known: dict[Symbol, list[tuple[Symbol, ...]]] = {}
        numbers: dict[Any, int] = {}
        found: list[Span] = []
        segmenter = Segmenter(lambda symbol: known.get(symbol, ()))
        edges = [Boundary(0, ""), *self.boundaries, Boundary(len(self.ops), "end")]
        for (start, _), (stop, reason) in pairwise(edges):
            entries = [table.entry(op) for op in self.ops[start:stop]]
            for cut in segmenter.cut([e.symbol for e in entries], at_end=True):
                part, entries = segment(entries[: cut.length]), entries[cut.length :]
                if part.key not in numbers:
                    chains = known.setdefault(part.symbols[0], [])
                    chains.append(part.symbols)
                    chains.sort(key=len, reverse=True)
                number = numbers.setdefault(part.key, len(numbers))
                found.append(Span(start, start + cut.length, cut.rule.value if entries else reason, number))
                start += cut.length
        return found

    def carry(self, span: Span) -> dict[str, str]:
        """Which outputs of an execution are inputs of the next execution of the same program: input -> output.

        This is what `Program.scan` wants of a training step.

        Raises:
            StreamError: the program does not run again.
        """
        following = next((s for s in self.spans() if s.start >= span.stop and s.program == span.program), None)
        if following is None:
            raise StreamError(f"carry: operations {span.start} to {span.stop} do not run again as a program")
        before, after = self.program(span), self.program(following)
        ids, later = (p.bindings.ids for p in (before, after))
        mine = {ids[n] for n in before.graph.outputs}
        pairs = [(ids[n], later[n]) for n in before.graph.inputs if later[n] in mine]
        return {before.name_of(old): before.name_of(new) for old, new in pairs}

    def values_at(self, place: int, ids: Iterable[int], recorder: Recorder | None = None) -> dict[int, Any]:
        """The arrays of `ids` after `place` operations of the session, which runs up to there."""
        recorder = recorder or Recorder(seed=self.seed_at(0))
        wanted = set(ids)
        for id, data in self.data.items():
            recorder.register_tensor_data_id(id, data)
        endings = sorted((end, id) for id, end in self.ends.items() if end <= place and id not in wanted)
        seeds = dict(self.seeds)
        gone = 0
        for number, op in enumerate(self.ops[:place]):
            if number in seeds:
                recorder.seed(seeds[number])
            recorder.register_operation(op)
            while gone < len(endings) and endings[gone][0] <= number + 1:
                recorder.drop(endings[gone][1])
                gone += 1
        recorder.flush()
        return {id: recorder.handles.array(id) for id in wanted}

    def seed_at(self, place: int) -> int:
        """The seed in force after `place` operations; 0 where the session set none."""
        row = bisect_right(self.seeds, place, key=lambda s: s[0])
        return self.seeds[row - 1][1] if row else 0

    def _random_state(self, start: int, stop: int) -> Any:
        if inside := [p for p, _ in self.seeds if start < p < stop]:
            raise StreamError(f"ops {start} to {stop}: the session seeds anew after op {inside[0]}; end there")
        row = bisect_right(self.seeds, start, key=lambda s: s[0])
        since = self.seeds[row - 1][0] if row else 0
        return seed_words(self.seed_at(start), sum(op.uses_random for op in self.ops[since:start]))

    def _bounds(self, span: "Span | slice | range") -> tuple[int, int]:
        start, stop = span.indices(len(self.ops))[:2] if isinstance(span, slice) else (span.start, span.stop)
        if not 0 <= start < stop <= len(self.ops):
            raise StreamError(f"program: expected some of the {len(self.ops)} operations, got {start} to {stop}")
        return start, stop


class _Values(Mapping[int, Any]):
    """What the inputs of a program held: uploaded data, or what the session computes up to its start."""

    def __init__(self, recording: Recording, place: int, ids: Iterable[int]) -> None:
        self._recording = recording
        self._place = place
        self._ids = tuple(ids)

    def __getitem__(self, id: int) -> Any:
        return self._recording.data[id] if id in self._recording.data else self._computed[id]

    def __contains__(self, id: object) -> bool:
        known = self._recording
        return id in self._ids and (id in known.data or id in known.made)

    def __iter__(self) -> Iterator[int]:
        return (id for id in self._ids if id in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def _computed(self) -> dict[int, Any]:
        return self._recording.values_at(self._place, [id for id in self._ids if id not in self._recording.data])


class _Reader:
    """Makes a recording of the messages of a session."""

    def __init__(self, messages: Sequence[RemoteMessage | TaskResponse]) -> None:
        self.recording: Final = Recording()
        self._expansion = Expansion()
        self._answers = recorded_reads(messages)
        self._values: dict[int, int] = {}
        """The tensor that an id of the session names."""
        self._owners: Counter[int] = Counter()
        self._handed: dict[Any, int] = {}
        largest = max((id for m in messages for id in _ids(m)), default=0)
        self._fresh = count(largest + 1)
        for message in messages:
            self._read(message)

    def _read(self, message: RemoteMessage | TaskResponse) -> None:
        match message:
            case RegisterTensor(tensor_id=id, data=data):
                self.recording.data[value := self._new_value(id.value)] = data
                self._alias(id.value, value)
            case RegisterAlias(new_id=new, src_id=source):
                self._alias(new.value, self._value(source.value, "RegisterAlias"))
            case ReadTensor(request_id=request, tensor=tensor):
                self._add_read(request, tensor)
            case SyncBackend():
                self.recording.cut("sync")
            case Seed(seed=seed):
                self.recording.cut("seed")
                self.recording.seeds.append((len(self.recording.ops), seed))
            case ExposeTensorLocal(tensor=tensor, transfer_id=key):
                self._handed[key] = self._value(tensor.id.value, "ExposeTensorLocal")
                self._owners[self._handed[key]] += 1
                self._end_if_last(tensor)
            case RegisterTensorLocal(new_id=new, transfer_id=key):
                if key not in self._handed:
                    raise ProtocolError(f"RegisterTensorLocal: nobody exposed tensor {new.value} before it is taken")
                value = self._handed.pop(key)
                self._alias(new.value, value)
                self._owners[value] -= 1
            case ExposeTensorRemote() | RegisterTensorRemote():
                raise ProtocolError(
                    f"{type(message).__name__}: a recording has no other server to give or take tensors"
                )
            case _:
                for operation in self._expansion.of(message):
                    self._append(operation.op)

    def _append(self, op: Op) -> None:
        if isinstance(op, Drop):
            self._end(op.tensor.id.value)
        elif not isinstance(op, Init):
            ended = [t for t in op.inputs if t.status is READ_WRITE]
            inputs = {t.id.value: self._value(t.id.value, op.kind) for t in op.inputs}
            outputs = {t.id.value: self._new_value(t.id.value) for t in op.outputs}
            self.recording.append(map_operands(op, lambda f, t: _single(t, outputs if f.is_output else inputs)))
            for id, value in outputs.items():
                self._alias(id, value)
            for tensor in ended:
                if tensor.id.value not in outputs:
                    self._end(tensor.id.value)

    def _add_read(self, request: int, tensor: TensorIr) -> None:
        value = self._value(tensor.id.value, "ReadTensor")
        named = replace(tensor, id=TensorId(value))
        self.recording.reads.append(Read(len(self.recording.ops), request, named, self._answers.get(request)))
        self.recording.cut("read")
        self._end_if_last(tensor)

    def _end_if_last(self, tensor: TensorIr) -> None:
        if tensor.status is READ_WRITE:
            self._end(tensor.id.value)

    def _value(self, id: int, kind: str) -> int:
        if id not in self._values:
            raise UnknownHandle(f"{kind}: tensor t{id} was never made, or its last use is past")
        return self._values[id]

    def _new_value(self, id: int) -> int:
        """A tensor that is new, called as it is in the session unless that was the name of another."""
        return next(self._fresh) if id in self._owners or id >= INNER_IDS else id

    def _alias(self, id: int, value: int) -> None:
        """Let `id` name `value`, whatever it named before."""
        self._owners[value] += 1
        self._end(id)
        self._values[id] = value

    def _end(self, id: int) -> None:
        value = self._values.pop(id, None)
        if value is not None:
            self._owners[value] -= 1
            if not self._owners[value]:
                self.recording.end(value)


def _single(tensor: TensorIr, values: Mapping[int, int]) -> TensorIr:
    """`tensor` under its number for good; nothing is used up."""
    status = NOT_INIT if tensor.status is NOT_INIT else READ_ONLY
    return replace(tensor, id=TensorId(values[tensor.id.value]), status=status)


def _ids(message: RemoteMessage | TaskResponse) -> Iterator[int]:
    """Ids that `message` brings into the session."""
    match message:
        case RegisterTensor(tensor_id=id):
            yield id.value
        case RegisterOperation(operation=operation):
            yield from (t.id.value for t in operation.op.outputs)
        case RegisterAndExecuteGraph(bindings=bindings) | ExecuteGraph(bindings=bindings):
            yield from (concrete.value for _, concrete in bindings.tensors)
        case RegisterAlias(new_id=id) | RegisterTensorLocal(new_id=id):
            yield id.value
        case _:
            return
