"""Burn's remote protocol without a socket: frames in, answers out.

    session = RemoteSession(host, process="10.0.0.7", number=1)
    for frame in frames:
        for answer in session.handle(frame):
            send(session.encode(answer))      # waits for the device where the answer is a read under way

`awaits` names a tensor that another session or server has to hand over; until `supply` brings it, the session stands
still. `end` says that the session is over, and why.

Promise: no I/O, no threads, no clock; no input raises.

Source: burn-remote 0.22.1 `server/`; refusals and their order as there.
"""

import hmac
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ir.dtype import BoolStore, PackedStore, QuantMode, QuantScheme, QuantValue
from ir.errors import WireError
from ir.tensor import TensorData
from ir.verify import Level
from ir.wire.messages import (
    Close,
    DeviceCount,
    Refusal,
    RegisterOperation,
    RemoteMessage,
    ServerVersion,
    SessionInfo,
    SessionInit,
    SessionRefusal,
    TaskResponse,
    TaskResponseContent,
    UnitRefusal,
    decode_batch,
    split_batch,
)
from ir.wire.release import PROTOCOL_1, PROTOCOL_2, Release
from ir.wire.values import DeviceSettings, FloatDType, IntDType, QuantConfig, QuantPropagation
from jax_backend.answers import Answer, Greeting, encode, response_of
from jax_backend.cache import ProgramCache
from jax_backend.dispatch import Dispatcher, Handed, Transfer, Transfers
from jax_backend.exchange import Exchange
from jax_backend.fast_lane import FastLane, Taken
from jax_backend.recorder import Recorder
from jax_backend.rendezvous import Member, Rendezvous
from jax_backend.types import Device

RELEASES: Final = {release.protocol: release for release in (PROTOCOL_1, PROTOCOL_2)}
"""What is spoken, by the version that a client announces.

Version 1 is 0.22.0-pre.2 as published; development snapshots after it announced 1 too, wrote other records, and fail
at the answer to their handshake.
"""

SETTINGS: Final = DeviceSettings(
    FloatDType.F32,
    IntDType.I32,
    BoolStore.Native,
    QuantConfig(
        QuantScheme(QuantValue.Q8F, PackedStore(PackedU32=0), QuantMode.Symmetric, None, None), QuantPropagation.Inhibit
    ),
)
"""The dtypes that clients give to new tensors."""

_MAX_ANSWER_BYTES: Final = {1: 2**29, 2: 2**30}
"""The largest message that a client takes."""


@dataclass(frozen=True)
class Limits:
    """What one session may ask for, each with the option of the server that sets it.

    `tensor_bytes`: of an uploaded tensor. `live_bytes`: of all its tensors and of what a program makes beside them.
    `tensors`, `graphs`: how many of them it may have.
    """

    tensor_bytes: int = 2**30
    live_bytes: float = math.inf
    tensors: int = 1_000_000
    graphs: int = 100_000


@dataclass(frozen=True)
class End:
    """A session is over. `close_code` None: the connection is dropped without a close frame."""

    reason: str
    close_code: int | None = 1000
    is_error: bool = True


@dataclass(frozen=True)
class Host:
    """What the sessions of a server share.

    Args:
        devices: one target each, by position.
        cache: programs.
        token: what clients have to show; empty: nothing.
        limits: of each session.
        verify: how much of each stream is checked.
        collective_s: seconds that an all-reduce waits for the sessions of other devices.
        launch_ahead: as of `Recorder`.
    """

    devices: Sequence[Device]
    cache: ProgramCache = field(default_factory=ProgramCache)
    token: bytes = b""
    limits: Limits = Limits()
    verify: Level = Level.off
    collective_s: float = 300.0
    launch_ahead: bool | None = None
    transfers: Transfers = field(default_factory=lambda: Transfers(Exchange(), Exchange()))
    bound: dict[int, int] = field(default_factory=dict[int, int])
    """Session id -> number of the session that has it. One atomic operation each way, so it needs no lock."""
    rendezvous: Rendezvous = field(init=False)
    """Where the sessions of one client meet for collectives."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rendezvous", Rendezvous(self.devices, timeout_s=self.collective_s))


class RemoteSession:
    """One client on one device, from its first frame on.

    Args:
        host: shared by all sessions.
        process: names the client's process as well as the server can tell, for transfers between its sessions.
        number: of this session, unique on the server.
    """

    def __init__(self, host: Host, process: Hashable, number: int) -> None:
        self.number: Final = number
        self.end: End | None = None
        self.device_index = 0
        self.release: Release = PROTOCOL_2
        self._host = host
        self._process = process
        self._session_id: int | None = None
        self._dispatcher: Dispatcher | None = None
        self._member: Member | None = None
        self._lane: FastLane | None = None
        self._held: Sequence[RemoteMessage] = ()

    @property
    def recorder(self) -> Recorder | None:
        """What runs the stream; None before the handshake."""
        return self._dispatcher.recorder if self._dispatcher else None

    @property
    def awaits(self) -> Transfer | None:
        """The tensor that has to be supplied before the stream goes on."""
        return self._dispatcher.awaits if self._dispatcher else None

    def handle(self, frame: bytes) -> list[Answer]:
        """Do what a frame asks for. Its messages run up to one that has to wait for a tensor, or ends the session."""
        if self.end is not None:
            return []
        if self._dispatcher is None:
            return self._greet(frame)
        try:
            taken, rest, messages = self._decoded(frame)
        except WireError as error:
            self.end = End(f"undecodable batch: {error}")
            return []
        self._dispatcher.record(taken)
        answers = self._run(messages)
        if self._lane is not None and messages:
            self._learn(self._lane, messages, rest)
        return answers

    def supply(self, value: Handed | TensorData) -> list[Answer]:
        """Bring the tensor that `awaits` names, or the reason why it does not come, and go on."""
        assert self._dispatcher is not None
        self._dispatcher.supply(value)
        held, self._held = self._held, ()
        return self._run(held)

    def give_up(self, why: str) -> None:
        """Wait no longer for other devices in a collective; any thread may call."""
        if self._member is not None:
            self._member.give_up(why)

    def encode(self, answer: Answer) -> bytes:
        """The frame of an answer. Waits for the device where the data is not there yet; any thread may call."""
        return self.pack(response_of(answer))

    def pack(self, response: TaskResponse) -> bytes:
        """The frame of a response."""
        return encode(response, self.release)

    def close(self) -> None:
        """Free everything. Reads under way still end."""
        if self._dispatcher is not None:
            self._dispatcher.close()
        if self._session_id is not None:
            self._host.bound.pop(self._session_id, None)
            self._session_id = None

    # ---- tasks

    def _decoded(self, frame: bytes) -> tuple[Sequence[Taken], bytes, list[RemoteMessage]]:
        """What the fast lane takes from a batch, the batch that is left, and its messages.

        Raises:
            WireError: `frame` is no batch.
        """
        if self._lane is None:
            return (), frame, decode_batch(frame, self.release)
        taken, rest = self._lane.take(frame)
        if rest is None:
            return taken, b"", []
        try:
            return taken, rest, decode_batch(rest, self.release)
        except WireError:  # once more, for the place in the whole
            return (), frame, decode_batch(frame, self.release)

    def _learn(self, lane: FastLane, messages: Sequence[RemoteMessage], frame: bytes) -> None:
        for message, data in zip(messages, split_batch(frame), strict=True):
            if isinstance(message, RegisterOperation):
                lane.learn(bytes(data), message.operation)
        if lane.is_closed:
            self._lane = None

    def _run(self, messages: Sequence[RemoteMessage]) -> list[Answer]:
        dispatcher = self._dispatcher
        assert dispatcher is not None
        record = dispatcher.recorder.register_operation
        answers: list[Answer] = []
        for place, message in enumerate(messages, 1):
            if type(message) is RegisterOperation:  # most of what comes: past the look-up of `do`
                try:
                    record(message.operation)
                except Exception as reason:
                    dispatcher.fail(message, reason)
                continue
            if isinstance(message, SessionInit | Close):
                self.end = self._ended_by(message)
                break
            answer = dispatcher.do(message)
            if answer is not None:
                answers.append(answer)
            if dispatcher.awaits is not None:
                self._held = messages[place:]
                break
        self._check_counts()
        return answers

    def _ended_by(self, message: SessionInit | Close) -> End:
        if isinstance(message, SessionInit):
            return End("a second Init")
        if message.session_id.id != self._session_id:
            return End("Close names another session")
        return End("closed by the client", is_error=False)

    def _check_counts(self) -> None:
        limits, recorder = self._host.limits, self.recorder
        assert recorder is not None
        num_tensors, num_graphs = len(recorder.handles), recorder.num_graphs
        if num_tensors > limits.tensors:
            self.end = End(f"expected at most {limits.tensors:,} tensors, got {num_tensors:,}: raise --max-tensors")
        elif num_graphs > limits.graphs:
            self.end = End(f"expected at most {limits.graphs:,} graphs, got {num_graphs:,}: raise --max-graphs")

    # ---- handshake

    def _greet(self, frame: bytes) -> list[Answer]:
        init = _sole_init(frame)
        if init is None or init.version not in RELEASES:
            version = "no handshake" if init is None else f"protocol {init.version}"
            refusal = Refusal(IncompatibleProtocol=ServerVersion(PROTOCOL_2.protocol))
            return self._refuse(refusal, f"{version}; this server speaks 1 and 2")
        self.release = RELEASES[init.version]
        host = self._host
        if host.token and not hmac.compare_digest(host.token, init.authorization):
            return self._refuse(UnitRefusal.Unauthorized, "wrong credential")
        num_devices = len(host.devices)
        if init.device_index >= num_devices:
            refusal = Refusal(NoSuchDevice=DeviceCount(num_devices))
            return self._refuse(refusal, f"device {init.device_index} of {num_devices}")
        session_id = init.session_id.id
        if host.bound.setdefault(session_id, self.number) != self.number:
            self.end = End("session id of another connection", close_code=None)
            return []
        self._session_id = session_id
        self._open(init.device_index)
        info = SessionInfo(init.version, SETTINGS, num_devices, None)
        return [Greeting(TaskResponseContent(Init=info))]

    def _open(self, device_index: int) -> None:
        host = self._host
        self._member = host.rendezvous.member(device_index, self._process)
        recorder = Recorder(
            member=self._member,
            cache=host.cache,
            verify=host.verify,
            name=f"session {self.number}",
            max_bytes=host.limits.live_bytes,
            launch_ahead=host.launch_ahead,
        )
        self.device_index = device_index
        if host.verify is Level.off and not self.release.changes:
            self._lane = FastLane(host.cache.symbols)
        self._dispatcher = Dispatcher(
            recorder,
            host.transfers,
            process=self._process,
            number=self.number,
            max_tensor_bytes=host.limits.tensor_bytes,
            max_read_bytes=_MAX_ANSWER_BYTES[self.release.protocol],
        )

    def _refuse(self, refusal: SessionRefusal, reason: str) -> list[Answer]:
        if "InitRefused" in self.release.absent:  # such a client knows no refusal: it panics on one
            self.end = End(f"refused: {reason}", close_code=None)
            return []
        self.end = End(f"refused: {reason}")
        return [Greeting(TaskResponseContent(InitRefused=refusal))]


def _sole_init(frame: bytes) -> SessionInit | None:
    try:
        messages = decode_batch(frame)
    except WireError:
        return None
    (init,) = messages if len(messages) == 1 else (None,)
    return init if isinstance(init, SessionInit) else None
