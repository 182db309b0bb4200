"""A recorder that writes its session to a capture, as a proxy between a Burn client and a server would.

    with open("step.bxs", "wb") as file, CapturingRecorder(Recorder(), file) as recorder:
        x = recorder.from_numpy(np.arange(6.0).reshape(2, 3))
        x.softmax(1).numpy()                 # `burn-xla run --check step.bxs` compares with what is read here

Promise: a replay of the file does what the recorder was asked to do, in the same order, and each read and sync in it
has its answer.
"""

import secrets
import time
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, Final, Self

from ir.errors import IrError
from ir.op import Op
from ir.operation import OperationIr
from ir.operation import operation as with_family
from ir.ops.control import Drop
from ir.tensor import READ_WRITE, TensorData, TensorIr
from ir.wire.capture import CaptureWriter, Side
from ir.wire.messages import (
    Close,
    ReadTensor,
    RegisterOperation,
    RegisterTensor,
    RemoteMessage,
    Seed,
    SessionInit,
    SyncBackend,
    TaskResponse,
    TaskResponseContent,
    TensorResult,
    UnitResult,
    encode_batch,
    encode_response,
)
from ir.wire.release import PROTOCOL_2
from ir.wire.values import ExecutionError, Reason, SessionId, StreamId
from jax_backend.recorder import ReadResult, Recorder
from jax_backend.tensor import TensorRecorder

BATCH: Final = 256
"""Messages in a frame, at most; a client sends what it has at a read."""

_STREAM: Final = StreamId(0)


class CapturedRead:
    """A read under way whose answer goes to the capture once it is there."""

    def __init__(self, read: ReadResult, note: Callable[[TensorResult], None]) -> None:
        self._read = read
        self._note: Callable[[TensorResult], None] | None = note

    def result(self) -> TensorData:
        """The data, as `ReadResult.result`.

        Raises:
            IrError: as there; the reason is recorded.
        """
        note, self._note = self._note, None
        try:
            data = self._read.result()
        except IrError as reason:
            if note is not None:
                note(TensorResult(Err=_error(reason)))
            raise
        if note is not None:
            note(TensorResult(Ok=data))
        return data

    def settle(self) -> None:
        """Record the answer, whatever it is, if nobody has asked for it."""
        if self._note is not None:
            try:
                self.result()
            except IrError:
                return


class CapturingRecorder(TensorRecorder):
    """Hands everything on to `recorder`, and writes it to `stream`, which is complete after `close`.

    What is done with `recorder` itself is not written.
    """

    def __init__(self, recorder: Recorder, stream: BinaryIO) -> None:
        self.recorder: Final = recorder
        self._writer = CaptureWriter(stream, "/session", f"burn-xla recorder {recorder.name!r}")
        self._began = time.perf_counter()
        self._batch: list[RemoteMessage] = []
        self._live: dict[int, TensorIr] = {}
        self._unanswered: dict[int, CapturedRead] = {}
        self._requests = 0
        self._session = SessionId(secrets.randbits(64))
        self._send(SessionInit(PROTOCOL_2.protocol, self._session, 0, b""))
        self._write_batch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def new_id(self) -> int:
        """A tensor id that the recorder has not handed out before."""
        return self.recorder.new_id()

    def register_operation(self, operation: OperationIr | Op) -> None:
        """Append an operation."""
        whole = operation if isinstance(operation, OperationIr) else with_family(operation)
        self._send(RegisterOperation(_STREAM, whole))
        self._live.update((t.id.value, t) for t in whole.op.outputs)
        self.recorder.register_operation(whole)

    def register_tensor_data(self, data: TensorData) -> TensorIr:
        """Bring data to the device under a fresh id."""
        made = self.recorder.register_tensor_data(data)
        self._send(RegisterTensor(_STREAM, made.id, data))
        self._live[made.id.value] = made
        return made

    def drop(self, id: int) -> None:
        """Forget a tensor; one that is gone already is no error."""
        tensor = self._live.pop(id, None)
        if tensor is not None:
            last_use = TensorIr(tensor.id, tensor.shape, READ_WRITE, tensor.dtype)
            self._send(RegisterOperation(_STREAM, with_family(Drop(last_use))))
        self.recorder.drop(id)

    def seed(self, value: int) -> None:
        """Start the random numbers over, from this point of the stream on."""
        self._send(Seed(value))
        self.recorder.seed(value)

    def read_tensor(self, tensor: TensorIr) -> CapturedRead:
        """Run what is pending and begin to read a tensor."""
        request = self._request()
        self._send(ReadTensor(request, _STREAM, tensor))
        self._write_batch()

        def note(answer: TensorResult) -> None:
            del self._unanswered[request]
            self._answer(request, TaskResponseContent(ReadTensor=answer))

        read = CapturedRead(self.recorder.read_tensor(tensor), note)
        self._unanswered[request] = read
        return read

    def sync(self) -> None:
        """Run what is pending and wait for the device.

        Raises:
            IrError: as `Recorder.sync`; the reason is recorded.
        """
        self.drop_unreachable()
        request = self._request()
        self._send(SyncBackend(request, _STREAM))
        self._write_batch()
        try:
            self.recorder.sync()
        except IrError as reason:
            self._answer(request, TaskResponseContent(SyncBackend=UnitResult(Err=_error(reason))))
            raise
        self._answer(request, TaskResponseContent(SyncBackend=UnitResult(Ok=None)))

    def close(self) -> None:
        """Write the answers that nobody has waited for, and end the session. The stream stays open."""
        self.drop_unreachable()
        for read in list(self._unanswered.values()):
            read.settle()
        self._send(Close(self._session))
        self._write_batch()

    def _request(self) -> int:
        self._requests += 1
        return self._requests

    def _send(self, message: RemoteMessage) -> None:
        self._batch.append(message)
        if len(self._batch) == BATCH:
            self._write_batch()

    def _write_batch(self) -> None:
        if self._batch:
            self._write("c", encode_batch(self._batch))
            self._batch.clear()

    def _answer(self, request: int, content: TaskResponseContent) -> None:
        self._write("s", encode_response(TaskResponse(content, request)))

    def _write(self, side: Side, data: bytes) -> None:
        self._writer.write(int(1e6 * (time.perf_counter() - self._began)), side, data)


def _error(reason: IrError) -> ExecutionError:
    return ExecutionError(Generic=Reason(str(reason)))
