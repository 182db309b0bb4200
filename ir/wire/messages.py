"""The messages of Burn's remote protocol, and the frames that carry them.

A client frame is a batch, an array of `RemoteMessage`: `SessionInit` (the first frame only), a `Task`, or `Close`. A
server frame is one `TaskResponse`. On `/data` each frame is one `ExternalCommMessage`.
Source: burn-remote 0.22.1 `shared/task.rs`, burn-communication; names as there.

Decoding a batch copies no tensor data: `TensorData.bytes` is a view of the frame.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, TypeAlias

from msgspec import UNSET, Raw, UnsetType
from msgspec.msgpack import Decoder

from ir.dtype import DType, StrEnum
from ir.errors import WireError
from ir.operation import GraphBindings, OperationIr
from ir.records import Record
from ir.serde import Tagged
from ir.tensor import TensorData, TensorId, TensorIr
from ir.wire import codec
from ir.wire.release import PROTOCOL_2, Release
from ir.wire.values import (
    U16,
    U32,
    U64,
    DeviceSettings,
    DTypeUsageSet,
    Duration,
    ExecutionError,
    GraphId,
    PeerId,
    ProfileOptions,
    ProfileToken,
    SessionId,
    StreamId,
    TensorRemote,
    TransferCapability,
)

LocalTransferId: TypeAlias = U64
TensorTransferId: TypeAlias = U64


class SessionInit(Record):
    """Opens a session on a device; `authorization` is empty unless the user set a credential."""

    version: U16
    session_id: SessionId
    device_index: U32
    authorization: bytes


class Close(Record):
    """Ends a session. On the wire the id alone."""

    session_id: SessionId


class Task(Record):
    """Base of what a session is asked to do. Variants with unnamed fields (`unnamed`) are arrays in JSON as well."""

    unnamed: ClassVar[bool] = True


class Seed(Task):
    """Seeds the device's generator. On the wire the number alone."""

    seed: U64


class RegisterOperation(Task):
    """Runs one operation."""

    stream_id: StreamId
    operation: OperationIr


class RegisterAndExecuteGraph(Task):
    """Stores a relative graph under an id, replacing what was there, then runs it."""

    unnamed = False

    stream_id: StreamId
    graph_id: GraphId
    relative_graph: tuple[OperationIr, ...]
    bindings: GraphBindings


class ExecuteGraph(Task):
    """Runs a stored graph with other bindings."""

    unnamed = False

    stream_id: StreamId
    graph_id: GraphId
    bindings: GraphBindings


class RegisterTensor(Task):
    """Uploads a tensor."""

    stream_id: StreamId
    tensor_id: TensorId
    data: TensorData


class RegisterAlias(Task):
    """Gives a tensor a second id, which is freed on its own."""

    unnamed = False

    stream_id: StreamId
    new_id: TensorId
    src_id: TensorId


class RegisterTensorRemote(Task):
    """Fetches a tensor that another server exposes."""

    stream_id: StreamId
    remote: TensorRemote
    new_id: TensorId


class ExposeTensorRemote(Task):
    """Lets another server fetch a tensor, `count` times."""

    unnamed = False

    stream_id: StreamId
    tensor: TensorIr
    count: U32
    capability: TransferCapability
    target: PeerId


class ExposeTensorLocal(Task):
    """Lets another session of this server take a tensor."""

    unnamed = False

    stream_id: StreamId
    tensor: TensorIr
    transfer_id: LocalTransferId


class RegisterTensorLocal(Task):
    """Takes a tensor that another session of this server exposes."""

    unnamed = False

    stream_id: StreamId
    transfer_id: LocalTransferId
    new_id: TensorId


class ReadTensor(Task):
    """Asks for the elements of a tensor."""

    request_id: U64
    stream_id: StreamId
    tensor: TensorIr


class SyncBackend(Task):
    """Asks for an answer once all work before is done."""

    request_id: U64
    stream_id: StreamId


class DTypeUsage(Task):
    """Asks what the device does with a dtype."""

    request_id: U64
    dtype: DType


class ProfileStart(Task):
    """Starts a measurement."""

    request_id: U64
    stream_id: StreamId


class ProfileEnd(Task):
    """Ends a measurement and asks for its result."""

    request_id: U64
    stream_id: StreamId
    token: ProfileToken
    options: ProfileOptions


class ProfileAbandon(Task):
    """Ends a measurement that nobody wants any more."""

    stream_id: StreamId
    token: ProfileToken


RemoteMessage: TypeAlias = SessionInit | Close | Task


class TensorResult(Tagged):
    """A tensor's elements, or why there are none."""

    Ok: TensorData | UnsetType = UNSET
    Err: ExecutionError | UnsetType = UNSET


class UnitResult(Tagged):
    """Success without a value, or why not."""

    Ok: UnsetType | None = UNSET
    Err: ExecutionError | UnsetType = UNSET


class ProfileTokenResult(Tagged):
    """A measurement's token, none where the client had better time itself, or an error."""

    Ok: ProfileToken | UnsetType | None = UNSET
    Err: ExecutionError | UnsetType = UNSET


class DurationResult(Tagged):
    """The measured span, none where there is no measurement, or an error."""

    Ok: Duration | UnsetType | None = UNSET
    Err: ExecutionError | UnsetType = UNSET


class SessionInfo(Record):
    """The server's part of a handshake."""

    version: U16
    settings: DeviceSettings
    device_count: U32
    peer_id: PeerId | None


class UnitRefusal(StrEnum):
    """The refusal that carries nothing: the credential is wrong."""

    Unauthorized = "Unauthorized"


class DeviceCount(Record):
    """How many devices there are."""

    device_count: U32


class ServerVersion(Record):
    """The protocol that the server speaks."""

    server_version: U16


class Refusal(Tagged):
    """The refusals that say what would have been right."""

    NoSuchDevice: DeviceCount | UnsetType = UNSET
    IncompatibleProtocol: ServerVersion | UnsetType = UNSET


SessionRefusal: TypeAlias = UnitRefusal | Refusal


class TaskResponseContent(Tagged):
    """The answer to one request."""

    Init: SessionInfo | UnsetType = UNSET
    ReadTensor: TensorResult | UnsetType = UNSET
    SyncBackend: UnitResult | UnsetType = UNSET
    DTypeUsage: DTypeUsageSet | UnsetType = UNSET
    ProfileStart: ProfileTokenResult | UnsetType = UNSET
    ProfileEnd: DurationResult | UnsetType = UNSET
    InitRefused: SessionRefusal | UnsetType = UNSET


class TaskResponse(Record):
    """An answer and the id of its request; 0 for the handshake."""

    content: TaskResponseContent
    id: U64


class ExternalCommMessage(Tagged):
    """A frame on `/data`: the key of a tensor, or the tensor."""

    TensorRequest: TensorTransferId | UnsetType = UNSET
    Tensor: TensorData | UnsetType = UNSET


TASKS: dict[str, type[Task]] = {task.__name__: task for task in Task.__subclasses__()}
"""Every task by its name on the wire."""


# Frames


_batch = Decoder(list[Raw]).decode
_graph = Decoder(tuple[StreamId, GraphId, list[Raw], GraphBindings]).decode
_stream_and_operation = Decoder(tuple[StreamId, Raw]).decode

_REGISTER = b"\x81\xa4Task\x81\xb1RegisterOperation\x92\x91"
_ARRAY_HEADS = {0xDC: 3, 0xDD: 5}


def decode_batch(frame: bytes | memoryview, release: Release = PROTOCOL_2) -> list[RemoteMessage]:
    """The messages of a client frame.

    Raises:
        WireError: the frame is no batch. The path starts at the task; the reason ends with the message's
            place, counted from 0.
    """
    frame = bytes(frame)
    try:
        raws = _batch(frame)
    except codec.REFUSED as error:
        codec.check(frame)
        raise codec.wire_error(error, list[Any], "") from error
    messages: list[RemoteMessage] = []
    start = _ARRAY_HEADS.get(frame[0], 1)
    skip = len(_REGISTER)
    for raw in raws:
        end = start + len(raw)
        try:
            # A stream id under 128 is one byte; others are rare enough for the general lane.
            if frame.startswith(_REGISTER, start) and (stream := frame[start + skip]) < 0x80:
                operation = codec.operation_at(frame, start + skip + 1, end, release, "RegisterOperation")
                messages.append(RegisterOperation(_stream(stream), operation))
            else:
                messages.append(_message(memoryview(frame)[start:end], release))
        except WireError as error:
            reason = f"{error.reason} (message {len(messages)} of {len(raws)})"
            raise WireError(error.path, reason) from error
        start = end
    return messages


def split_batch(frame: bytes | memoryview) -> list[Raw]:
    """The messages of a client frame that `decode_batch` takes, as they came; none is copied."""
    return _batch(frame)


def encode_batch(messages: Sequence[RemoteMessage], release: Release = PROTOCOL_2) -> bytes:
    """A client frame of `messages`.

    Raises:
        WireError: the release does not know a message, or cannot say a value of one.
    """
    return codec.encode_form([_form(message, release, named=False) for message in messages])


def decode_response(frame: bytes | memoryview, release: Release = PROTOCOL_2) -> TaskResponse:
    """The answer that a server frame holds.

    Raises:
        WireError: the frame is no answer.
    """
    return codec.decode(frame, TaskResponse, release)


def encode_response(response: TaskResponse, release: Release = PROTOCOL_2) -> bytes:
    """A server frame.

    Raises:
        WireError: the release does not know the answer.
    """
    if response.content.variant in release.absent:
        raise WireError(f"content.{response.content.variant}", f"unknown answer of Burn {release.name}")
    return codec.encode(response, release)


def message_to_json(message: RemoteMessage, release: Release = PROTOCOL_2) -> bytes:
    """A message as serde_json writes it.

    Raises:
        WireError: the release does not know the message, or cannot say a value of it.
    """
    return codec.json_text(_form(message, release, named=True))


def message_from_json(text: bytes | str, release: Release = PROTOCOL_2) -> RemoteMessage:
    """The message that a JSON text holds.

    Raises:
        WireError: the text is no message.
    """
    return message_from_named(codec.parse_json(text), release)


def message_from_named(value: Any, release: Release = PROTOCOL_2) -> RemoteMessage:
    """The message whose JSON was read into dicts and lists.

    Raises:
        WireError: it is no message.
    """
    return _message_of(value, release, named=True)


@cache
def _stream(value: int) -> StreamId:
    return StreamId(value)


def _message(data: memoryview, release: Release) -> RemoteMessage:
    """A message by the general lane."""
    outer, payload = codec.variant(data, "")
    if outer != "Task":
        return _message_of({outer: codec.unpack(payload, outer)}, release, named=False)
    name, payload = codec.variant(payload, "")
    task = _task_type(name, release)
    if release.changes:
        return _task_of(task, codec.unpack(payload, name), release, named=False)
    try:
        if task is RegisterOperation:
            stream, operation = _stream_and_operation(payload)
            path = "RegisterOperation"
            return RegisterOperation(stream, codec.operation_at(bytes(operation), 0, len(operation), release, path))
        if task is RegisterAndExecuteGraph:
            stream, graph_id, operations, bindings = _graph(payload)
            made = _operations(operations, release, f"{name}.relative_graph")
            return RegisterAndExecuteGraph(stream, graph_id, made, bindings)
    except codec.REFUSED as error:
        raise codec.wire_error(error, task, name) from error
    if task is Seed:
        payload = b"\x91" + bytes(payload)
    return codec.decode(payload, task, release, name)


def _operations(raws: list[Raw], release: Release, path: str) -> tuple[OperationIr, ...]:
    made: list[OperationIr] = []
    for raw in raws:
        try:
            made.append(codec.operation_at(bytes(raw), 0, len(raw), release, ""))
        except WireError as error:
            place = f"{path}[{len(made)}]"
            raise WireError(f"{place}.{error.path}" if error.path else place, error.reason) from error
    return tuple(made)


def _task_type(name: str, release: Release) -> type[Task]:
    if name not in TASKS or name in release.absent:
        raise WireError(name, f"unknown task of Burn {release.name}; expected one of {', '.join(TASKS)}")
    return TASKS[name]


def _form(message: RemoteMessage, release: Release, *, named: bool) -> Any:
    """A message ready for msgspec, in the layout of the release."""
    form = codec.to_named if named else codec.to_compact
    if isinstance(message, SessionInit):
        return {"Init": form(message, release)}
    if isinstance(message, Close):
        return {"Close": form(message.session_id, release)}
    name = type(message).__name__
    _task_type(name, release)
    return {"Task": {name: message.seed if isinstance(message, Seed) else form(message, release)}}


def _message_of(value: Any, release: Release, *, named: bool) -> RemoteMessage:
    from ir.wire import layout

    name, payload = layout.only(value, "")
    match name:
        case "Init":
            return codec.from_layout(payload, SessionInit, release, named, "Init")
        case "Close":
            return Close(codec.from_layout(payload, SessionId, release, named, "Close"))
        case "Task":
            task, fields = layout.only(payload, "")
            return _task_of(_task_type(task, release), fields, release, named=named)
        case _:
            raise WireError(name, "unknown message; expected one of Task, Init, Close")


def _task_of(task: type[Task], fields: Any, release: Release, *, named: bool) -> Task:
    return codec.from_layout([fields] if task is Seed else fields, task, release, named, task.__name__)
