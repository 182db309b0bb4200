"""Plays the client's side of a recorded session into a recorder: what a server would do, without a socket.

for answer in replay(read_messages("step.bxs"), Recorder()):
    print(answer.request_id, answer)
"""

from collections.abc import Iterable, Iterator

from ir.errors import ProtocolError
from ir.wire.messages import (
    Close,
    DTypeUsage,
    ExposeTensorRemote,
    ProfileAbandon,
    ProfileEnd,
    ProfileStart,
    RegisterTensorRemote,
    RemoteMessage,
    SessionInit,
    TaskResponse,
    TensorResult,
)
from jax_backend.answers import Read, Sync
from jax_backend.dispatch import Dispatcher, LocalTransfer, Transfers
from jax_backend.exchange import Exchange
from jax_backend.recorder import Recorder

__all__ = ["Read", "Replay", "Sync", "recorded_reads", "replay"]

_OTHER_SIDE = -1
"""Takes what the session itself exposes: a replay plays both sides of a transfer."""


class Replay:
    """One session. Questions about the device and about time are left out: their answers are not the program's."""

    def __init__(self, recorder: Recorder) -> None:
        self._transfers = Transfers(Exchange(), Exchange())
        self._dispatcher = Dispatcher(recorder, self._transfers)

    def play(self, message: RemoteMessage) -> Read | Sync | None:
        """Do what `message` asks for.

        Raises:
            ProtocolError: it asks for another server, or for a tensor that nobody exposed.
        """
        match message:
            case SessionInit() | DTypeUsage() | ProfileStart() | ProfileEnd() | ProfileAbandon():
                return None
            case Close():
                self._dispatcher.recorder.flush()
                return None
            case ExposeTensorRemote() | RegisterTensorRemote():
                raise ProtocolError(f"{type(message).__name__}: a replay has no other server to exchange tensors with")
            case _:
                answer = self._dispatcher.do(message)
        if isinstance(awaited := self._dispatcher.awaits, LocalTransfer):
            self._take(awaited)
        return answer if isinstance(answer, Read | Sync) else None

    def _take(self, awaited: LocalTransfer) -> None:
        value = self._transfers.local.take(awaited.key, _OTHER_SIDE)
        if value is None:
            raise ProtocolError(f"RegisterTensorLocal: nobody exposed tensor {awaited.new_id.value} before it is taken")
        self._dispatcher.supply(value)


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
