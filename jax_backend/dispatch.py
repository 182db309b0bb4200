"""From the tasks of a client to calls of a recorder, in the order of the stream.

Promise: no I/O, no threads, no clock. A task that cannot be done fails the tensors that it should have made, or is
answered with its failure; the next task finds everything else as it was.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeAlias

import jax

from ir.errors import IrError, ProtocolError, ShapeError
from ir.tensor import TensorData, TensorId, TensorIr
from ir.wire.messages import (
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
    Seed,
    SyncBackend,
    Task,
)
from ir.wire.values import Address, ProfileToken, TransferCapability
from jax_backend.answers import Answer, ProfileEnded, ProfileStarted, Read, Sync, Usage
from jax_backend.exchange import Exchange
from jax_backend.fast_lane import Taken
from jax_backend.reads import ReadResult
from jax_backend.recorder import Recorder

USAGE_BITS: Final = {"storage": 1, "arithmetic": 2, "accelerated": 4}
MAX_WINDOWS: Final = 1024
"""Measurements under way in one session."""

_FRAME_OVERHEAD_BYTES: Final = 1024
"""What a response adds to its data at most: names, dtype, and up to a hundred dims."""

Handed: TypeAlias = jax.Array | IrError
"""A tensor handed from session to session on the device, or why there is none."""


@dataclass(frozen=True)
class LocalTransfer:
    """Waits for a tensor that another session of this server exposes."""

    key: Hashable
    new_id: TensorId


@dataclass(frozen=True)
class RemoteTransfer:
    """Waits for a tensor that another server exposes."""

    peer: Address
    key: int
    new_id: TensorId


Transfer: TypeAlias = LocalTransfer | RemoteTransfer


@dataclass(frozen=True)
class Transfers:
    """Where sessions leave tensors: `local` for each other, on the device, `remote` for other servers, by secret."""

    local: Exchange[Handed]
    remote: Exchange[ReadResult]


class Dispatcher:
    """Does the tasks of one client with one recorder.

    While `awaits` is not None the stream stands still: whoever drives this gets the tensor and calls `supply`.

    Args:
        recorder: it belongs to this dispatcher from now on.
        transfers: shared by all sessions of a server.
        process: names the client process; its transfer ids mean nothing to others.
        number: of the session on its server.
        max_tensor_bytes: of an uploaded tensor.
        max_read_bytes: of an answer, whatever its kind.
    """

    def __init__(
        self,
        recorder: Recorder,
        transfers: Transfers | None = None,
        *,
        process: Hashable = None,
        number: int = 0,
        max_tensor_bytes: int = 2**30,
        max_read_bytes: int = 2**30,
    ) -> None:
        self.recorder: Final = recorder
        self.awaits: Transfer | None = None
        self._transfers = transfers or Transfers(Exchange(), Exchange())
        self._process = process
        self._number = number
        self._max_tensor_bytes = max_tensor_bytes
        self._max_read_bytes = max_read_bytes - _FRAME_OVERHEAD_BYTES
        self._windows: dict[int, float] = {}
        self._window_ids = count()
        self._actions: dict[type[Task], Callable[[Any], Answer | None]] = {
            RegisterOperation: lambda task: recorder.register_operation(task.operation),
            ExecuteGraph: lambda task: recorder.execute_graph(task.graph_id, task.bindings),
            RegisterAndExecuteGraph: self._register_and_execute,
            RegisterTensor: self._upload,
            RegisterAlias: lambda task: recorder.register_alias(task.new_id.value, task.src_id.value),
            Seed: lambda task: recorder.seed(task.seed),
            ReadTensor: self._read,
            SyncBackend: self._sync,
            DTypeUsage: self._usage,
            ExposeTensorLocal: self._expose_local,
            RegisterTensorLocal: self._take_local,
            ExposeTensorRemote: self._expose_remote,
            RegisterTensorRemote: self._take_remote,
            ProfileStart: self._start_profile,
            ProfileEnd: self._end_profile,
            ProfileAbandon: self._abandon_profile,
        }

    def do(self, task: Task) -> Answer | None:
        """Do one task; what asks for something is answered, everything else is not."""
        try:
            return self._actions[type(task)](task)
        except Exception as reason:  # of the input, of jax, ours: it ends this task, never the session
            return self.fail(task, reason)

    def record(self, taken: Iterable[Taken]) -> None:
        """Do operations that were recognised by their bytes."""
        recorder = self.recorder
        for element in taken:
            try:
                if isinstance(element, int):
                    recorder.drop(element)
                else:
                    recorder.append(element)
            except Exception as reason:
                outputs = () if isinstance(element, int) else element.outputs
                recorder.fail(outputs, _ir_error(RegisterOperation, reason))

    def fail(self, task: Task, reason: Exception) -> Answer | None:
        """Put down that `task` raised `reason`."""
        return self._failed(task, _ir_error(type(task), reason))

    def supply(self, value: Handed | TensorData) -> None:
        """Give what `awaits` names, or the reason why it does not come."""
        assert self.awaits is not None
        new, self.awaits = self.awaits.new_id.value, None
        try:
            if isinstance(value, IrError):
                self.recorder.fail([new], value)
            elif isinstance(value, TensorData):
                self._check_size(value)
                self.recorder.register_tensor_data_id(new, value)
            else:
                self.recorder.register_handle(new, value)
        except Exception as defect:
            self.recorder.fail([new], defect if isinstance(defect, IrError) else IrError(str(defect)))

    def close(self) -> None:
        """Free everything; exposed tensors that no session of this server took go too, those for others stay."""
        self.awaits = None
        self._transfers.local.withdraw(self._number)
        self._windows.clear()
        self.recorder.close()

    def _failed(self, task: Task, failure: IrError) -> Answer | None:
        match task:
            case ReadTensor(request_id=id, tensor=tensor):
                return Read(id, tensor, ReadResult(tensor, None, failure))
            case SyncBackend(request_id=id):
                return Sync(id, failure)
            case DTypeUsage(request_id=id):
                return Usage(id, 0)
            case ProfileStart(request_id=id):
                return ProfileStarted(id, None, failure)
            case ProfileEnd(request_id=id):
                return ProfileEnded(id, 0.0, failure)
            case RegisterTensor(tensor_id=made) | RegisterAlias(new_id=made):
                self.recorder.fail([made.value], failure)
            case RegisterTensorLocal(new_id=made) | RegisterTensorRemote(new_id=made):
                self.recorder.fail([made.value], failure)
            case RegisterOperation(operation=operation):
                self.recorder.fail([t.id.value for t in operation.op.outputs], failure)
            case _:
                self.recorder.fail([], failure)
        return None

    # ---- tasks

    def _register_and_execute(self, task: RegisterAndExecuteGraph) -> None:
        self.recorder.register_graph(task.graph_id, task.relative_graph)
        self.recorder.execute_graph(task.graph_id, task.bindings)

    def _upload(self, task: RegisterTensor) -> None:
        self._check_size(task.data)
        self.recorder.register_tensor_data_id(task.tensor_id.value, task.data)

    def _check_size(self, data: TensorData) -> None:
        if (got := memoryview(data.bytes).nbytes) > self._max_tensor_bytes:
            raise ShapeError(
                f"RegisterTensor.data: expected at most {self._max_tensor_bytes:,} bytes, got {got:,}: "
                "send it in parts, or raise the limit of the server (--max-tensor-bytes)"
            )

    def _read(self, task: ReadTensor) -> Read:
        tensor = task.tensor
        result = self.recorder.read_tensor(tensor)
        if (size := num_bytes(tensor)) > self._max_read_bytes:
            failure = ShapeError(
                f"ReadTensor: expected at most {self._max_read_bytes:,} bytes, got {size:,} in {tensor}: "
                "a client takes no larger message; read it in slices"
            )
            result = ReadResult(tensor, None, failure)
        return Read(task.request_id, tensor, result)

    def _sync(self, task: SyncBackend) -> Sync:
        self.recorder.sync()
        return Sync(task.request_id, None)

    def _usage(self, task: DTypeUsage) -> Usage:
        return Usage(task.request_id, sum(USAGE_BITS[use] for use in self.recorder.dtype_usage(task.dtype)))

    def _expose_local(self, task: ExposeTensorLocal) -> None:
        value: Handed
        try:
            value = self.recorder.take_handle(task.tensor)
        except IrError as failure:
            value = failure
        self._transfers.local.offer((self._process, task.transfer_id), self._number, value)

    def _take_local(self, task: RegisterTensorLocal) -> None:
        key = (self._process, task.transfer_id)
        self.awaits = LocalTransfer(key, task.new_id)
        value = self._transfers.local.take(key, self._number)
        if value is not None:
            self.supply(value)

    def _expose_remote(self, task: ExposeTensorRemote) -> None:
        result = self._read(ReadTensor(0, task.stream_id, task.tensor)).result
        result.array()  # a failure is reported here: `/data` has no way to tell it
        self._transfers.remote.offer(transfer_key(task.capability), self._number, result, task.count)

    def _take_remote(self, task: RegisterTensorRemote) -> None:
        peer = task.remote.peer.payload
        self.awaits = RemoteTransfer(peer, transfer_key(task.remote.capability), task.new_id)

    def _start_profile(self, task: ProfileStart) -> ProfileStarted:
        if len(self._windows) >= MAX_WINDOWS:
            raise ProtocolError(f"ProfileStart: expected at most {MAX_WINDOWS} measurements at once; end some first")
        began = self.recorder.profile_start()
        token = ProfileToken(next(self._window_ids), task.stream_id.value)
        self._windows[token.id] = began
        return ProfileStarted(task.request_id, token)

    def _end_profile(self, task: ProfileEnd) -> ProfileEnded:
        if (began := self._windows.pop(task.token.id, None)) is None:
            raise ProtocolError(f"ProfileEnd.token: no measurement {task.token.id} is under way")
        return ProfileEnded(task.request_id, self.recorder.profile_end(began))

    def _abandon_profile(self, task: ProfileAbandon) -> None:
        self._windows.pop(task.token.id, None)


def _ir_error(task: type[Task], reason: Exception) -> IrError:
    if isinstance(reason, IrError):
        return reason
    failure = IrError(f"{task.__name__}: {type(reason).__name__}: {reason}")
    failure.__cause__ = reason
    return failure


def num_bytes(tensor: TensorIr) -> int:
    """Bytes of a tensor's elements; of a quantized one with its scales."""
    if tensor.dtype.is_quantized:
        from jax_backend.ops.quantize import storage_size

        return storage_size(tensor)
    return tensor.dtype.size_bytes * math.prod(tensor.shape.dims)


def transfer_key(capability: TransferCapability) -> int:
    """The key that `/data` is asked for: the first 8 bytes of the secret.

    >>> transfer_key((1, 2) + (0,) * 30)
    513
    """
    return int.from_bytes(bytes(capability[:8]), "little")
