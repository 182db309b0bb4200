"""What a recorded session holds, found without running it and without importing jax."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ir.errors import StreamError
from ir.graph import bind_op
from ir.op import map_tensors
from ir.operation import GraphBindings, OperationIr
from ir.ops.control import Drop, Init
from ir.tensor import TensorId, TensorIr
from ir.wire.capture import read_messages
from ir.wire.messages import (
    ExecuteGraph,
    ReadTensor,
    RegisterAndExecuteGraph,
    RegisterOperation,
    RegisterTensor,
    RemoteMessage,
    TaskResponse,
)

INNER_IDS: Final = 1 << 63
"""Ids from here on are ours: what stays inside one execution of a registered graph."""


class Summary(Struct):
    """Counts of a session. An operation inside a registered graph counts once per execution."""

    messages: Counter[str] = field(default_factory=Counter)
    """The client's messages, by name."""
    answers: int = 0
    """What the server answered, where that was recorded."""
    operations: int = 0
    """Operations without Init and Drop."""
    inits: int = 0
    drops: int = 0
    graphs: int = 0
    """Graphs that were registered."""
    graph_executions: int = 0
    reads: int = 0
    uploads: int = 0
    uploaded_bytes: int = 0
    computed_tensors: int = 0
    computed_bytes: int = 0
    """Bytes of all outputs, as if each were kept."""
    largest: str = ""
    """The largest tensor, as `f32[32,784]`."""
    families: Counter[str] = field(default_factory=Counter)
    """Operations by outer variant."""
    forms: Counter[str] = field(default_factory=Counter)
    """Operations by path on the wire."""
    dtypes: Counter[str] = field(default_factory=Counter)
    """Outputs by dtype."""
    types: Counter[str] = field(default_factory=Counter)
    """Outputs by dtype and shape."""


class Expansion:
    """The operations that each message of a session runs; it remembers the registered graphs."""

    def __init__(self) -> None:
        self._graphs: dict[int, Sequence[OperationIr]] = {}
        self._fresh = count(INNER_IDS)

    def of(self, message: RemoteMessage | TaskResponse) -> Iterator[OperationIr]:
        """The operations of `message`, those of graph executions with their sizes, scalars and ids bound.

        Raises:
            StreamError: a graph is executed that was not registered.
        """
        match message:
            case RegisterOperation(operation=operation):
                yield operation
            case RegisterAndExecuteGraph(graph_id=id, relative_graph=graph, bindings=bindings):
                self._graphs[id] = graph
                yield from _executed(graph, bindings, self._fresh)
            case ExecuteGraph(graph_id=id, bindings=bindings):
                if id not in self._graphs:
                    raise StreamError(f"ExecuteGraph.graph_id: no graph is registered under {id}")
                yield from _executed(self._graphs[id], bindings, self._fresh)
            case _:
                pass


def operations(messages: Iterable[RemoteMessage | TaskResponse]) -> Iterator[OperationIr]:
    """Every operation in the order it runs: see `Expansion`.

    Raises:
        StreamError: a graph is executed that was not registered.
    """
    expansion = Expansion()
    for message in messages:
        yield from expansion.of(message)


def _executed(graph: Sequence[OperationIr], bindings: GraphBindings, fresh: Iterator[int]) -> Iterator[OperationIr]:
    names = {relative.value: concrete.value for relative, concrete in bindings.tensors}

    def named(tensor: TensorIr) -> TensorIr:
        relative = tensor.id.value
        if relative not in names:
            names[relative] = next(fresh)
        return replace(tensor, id=TensorId(names[relative]))

    for operation in graph:
        yield replace(operation, op=map_tensors(bind_op(operation.op, bindings), named))


def summarise(path: str | os.PathLike[str]) -> Summary:
    """The counts of the session in a file.

    Raises:
        WireError: the file is no session.
        StreamError: a graph is executed that was not registered.
        OSError: the file cannot be read.
    """
    summary = Summary()
    largest = -1

    def counted() -> Iterator[RemoteMessage | TaskResponse]:
        for message in read_messages(path):
            _count_message(summary, message)
            yield message

    for operation in operations(counted()):
        if isinstance(operation.op, Init | Drop):
            summary.inits += isinstance(operation.op, Init)
            summary.drops += isinstance(operation.op, Drop)
            continue
        summary.operations += 1
        summary.families[operation.family] += 1
        summary.forms[operation.path] += 1
        for tensor in operation.op.outputs:
            num_bytes = math.prod(tensor.shape.dims) * tensor.dtype.size_bytes
            name = str(tensor).partition(" ")[2]
            summary.computed_tensors += 1
            summary.computed_bytes += num_bytes
            summary.dtypes[tensor.dtype.short] += 1
            summary.types[name] += 1
            if num_bytes > largest:
                largest, summary.largest = num_bytes, name
    return summary


def _count_message(summary: Summary, message: RemoteMessage | TaskResponse) -> None:
    if isinstance(message, TaskResponse):
        summary.answers += 1
        return
    summary.messages[type(message).__name__] += 1
    summary.reads += isinstance(message, ReadTensor)
    summary.graphs += isinstance(message, RegisterAndExecuteGraph)
    summary.graph_executions += isinstance(message, RegisterAndExecuteGraph | ExecuteGraph)
    if isinstance(message, RegisterTensor):
        summary.uploads += 1
        summary.uploaded_bytes += memoryview(message.data.bytes).nbytes
