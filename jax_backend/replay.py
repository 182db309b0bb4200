"""Plays the client's side of a recorded session into a recorder: what a server would do, without a socket.

for answer in replay(read_messages("step.bxs"), Recorder()):
print(answer.request_id, answer)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax

from ir.errors import IrError, ProtocolError
from ir.tensor import TensorIr
from ir.wire.messages import (
    Close,
    DTypeUsage,
    ExecuteGraph,
    ExposeTensorLocal,
    ExposeTensorRemote,
    ProfileAbandon,
    ProfileEnd,
    ProfileStart,
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
    TensorResult,
)
from jax_backend.recorder import ReadResult, Recorder


@dataclass(frozen=True)
class Read:
    """A read under way; `result.result()` waits for it."""

    request_id: int
    tensor: TensorIr
    result: ReadResult


@dataclass(frozen=True)
class Sync:
    """A sync that was waited for, and the failure it reported."""

    request_id: int
    failure: IrError | None


class Replay:
    """One session. Questions about the device and about time are left out: their answers are not the program's."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._exposed: dict[int, jax.Array] = {}

    def play(self, message: RemoteMessage) -> Read | Sync | None:
        """Do what `message` asks for.

        Raises:
            ProtocolError: it asks for another server, or for a tensor that nobody exposed.
            IrError: the source of an alias or of a transfer is unknown or failed.
        """
        recorder = self._recorder
        match message:
            case RegisterOperation(operation=operation):
                recorder.register_operation(operation)
            case ExecuteGraph(graph_id=graph_id, bindings=bindings):
                recorder.execute_graph(graph_id, bindings)
            case RegisterAndExecuteGraph(graph_id=graph_id, relative_graph=graph, bindings=bindings):
                recorder.register_graph(graph_id, graph)
                recorder.execute_graph(graph_id, bindings)
            case RegisterTensor(tensor_id=id, data=data):
                recorder.register_tensor_data_id(id.value, data)
            case RegisterAlias(new_id=new, src_id=source):
                recorder.register_alias(new.value, source.value)
            case Seed(seed=seed):
                recorder.seed(seed)
            case ReadTensor(request_id=request_id, tensor=tensor):
                return Read(request_id, tensor, recorder.read_tensor(tensor))
            case SyncBackend(request_id=request_id):
                return self._sync(request_id)
            case ExposeTensorLocal(tensor=tensor, transfer_id=transfer):
                self._exposed[transfer] = recorder.take_handle(tensor)
            case RegisterTensorLocal(transfer_id=transfer, new_id=new):
                self._take(transfer, new.value)
            case ExposeTensorRemote() | RegisterTensorRemote():
                raise ProtocolError(f"{type(message).__name__}: a replay has no other server to exchange tensors with")
            case SessionInit() | DTypeUsage() | ProfileStart() | ProfileEnd() | ProfileAbandon():
                pass
            case Close():
                recorder.flush()
            case _:
                raise ProtocolError(f"{type(message).__name__}: a replay does not know this message")
        return None

    def _sync(self, request_id: int) -> Sync:
        try:
            self._recorder.sync()
        except IrError as failure:
            return Sync(request_id, failure)
        return Sync(request_id, None)

    def _take(self, transfer: int, new: int) -> None:
        if transfer not in self._exposed:
            known = ", ".join(map(str, self._exposed)) or "none"
            raise ProtocolError(f"RegisterTensorLocal.transfer_id: {transfer} is not exposed; exposed are: {known}")
        self._recorder.register_handle(new, self._exposed.pop(transfer))


def replay(messages: Iterable[RemoteMessage | TaskResponse], recorder: Recorder) -> Iterator[Read | Sync]:
    """Play the client's messages; recorded answers among them are passed over.

    Raises:
        ProtocolError: as `Replay.play`.
    """
    session = Replay(recorder)
    for message in messages:
        if not isinstance(message, TaskResponse):
            answer = session.play(message)
            if answer is not None:
                yield answer


def recorded_reads(messages: Iterable[RemoteMessage | TaskResponse]) -> dict[int, TensorResult]:
    """The recorded answers to reads, by request id."""
    found: dict[int, TensorResult] = {}
    for message in messages:
        if isinstance(message, TaskResponse) and isinstance(message.content.ReadTensor, TensorResult):
            found[message.id] = message.content.ReadTensor
    return found
