"""Tensors between servers: fetching what another one exposes on `/data`, and giving out what is exposed here.

A client names the server to fetch from, so a server only connects to peers that its owner named: nobody can make it
knock on other doors of its network.
"""

import asyncio
import re
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from typing import Final

from picows import WSMsgType, ws_connect

from ir.errors import IrError, ProtocolError, WireError
from ir.tensor import TensorData
from ir.wire import codec
from ir.wire.messages import ExternalCommMessage
from ir.wire.values import Address
from jax_backend.dispatch import Transfers
from jax_backend.frames import MessageListener
from jax_backend.reads import ReadResult

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
ANY: Final = "*"

_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_CONNECT_S: Final = 15.0


def url_of(peer: Address, allowed: Collection[str]) -> str:
    """Where `peer` gives out tensors.

    Args:
        peer: as the client spelled it.
        allowed: hosts, each with or without `:port`, beside this machine; `*` allows all.

    Raises:
        ProtocolError: it is no WebSocket address, or not allowed.
    """
    name = peer.host if peer.port is None else f"{peer.host}:{peer.port}"
    if peer.scheme != "ws" or not _HOST.fullmatch(peer.host):
        raise ProtocolError(f"RegisterTensorRemote.peer: expected ws://host:port, got {peer.scheme}://{name}")
    if ANY not in allowed and not {name, peer.host} & {*allowed, *LOOPBACK}:
        raise ProtocolError(
            f"RegisterTensorRemote.peer: this server fetches nothing from {name}; start it with --peer {name}"
        )
    return f"ws://{name}/data"


async def fetch(url: str, key: int, max_message_bytes: int) -> TensorData:
    """The tensor that the server at `url` exposes under `key`; waits until it does.

    Raises:
        IrError: the server cannot be reached, or ends without a tensor.
    """
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    try:
        transport, _ = await ws_connect(
            lambda: _Answer(answer, max_message_bytes),
            url,
            max_frame_size=max_message_bytes,
            websocket_handshake_timeout=_CONNECT_S,
        )
    except Exception as reason:  # sockets, names and handshakes each have their own
        raise IrError(f"RegisterTensorRemote: {url}: {reason}") from reason
    try:
        transport.send(WSMsgType.BINARY, codec.encode(ExternalCommMessage(TensorRequest=key)))
        message = codec.decode(await answer, ExternalCommMessage)
    finally:
        transport.disconnect()
    if not isinstance(message.Tensor, TensorData):
        raise ProtocolError(f"RegisterTensorRemote: {url}: expected a tensor, got {message.variant}")
    return message.Tensor


class _Answer(MessageListener):
    """Takes the first message."""

    def __init__(self, answer: asyncio.Future[bytes], max_message_bytes: int) -> None:
        super().__init__(max_message_bytes)
        self._answer = answer

    def message(self, data: bytes) -> None:
        if not self._answer.done():
            self._answer.set_result(data)

    def disconnected(self) -> None:
        if not self._answer.done():
            self._answer.set_exception(IrError("RegisterTensorRemote: the other server ended without a tensor"))


class DataConnection(MessageListener):
    """Gives out exposed tensors to another server, one at a time.

    There is no answer for a key that nobody exposes, and none for a failure: the one waits, the other ends it.

    Args:
        number: of this connection among those that take, unique and negative.
        open_connections: this is one of them while it is open.
        executor: waits for devices and copies data.
        report: takes why a request went wrong.
    """

    def __init__(
        self,
        transfers: Transfers,
        number: int,
        open_connections: "set[DataConnection]",
        executor: Executor,
        max_message_bytes: int,
        report: Callable[[str], None],
    ) -> None:
        super().__init__(max_message_bytes)
        self._exposed = transfers.remote
        self._number = number
        self._open_connections = open_connections
        self._executor = executor
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._key: int | None = None

    def connected(self) -> None:
        """Another server is there."""
        self._open_connections.add(self)

    def message(self, data: bytes) -> None:
        """A request."""
        try:
            request = codec.decode(data, ExternalCommMessage).TensorRequest
        except WireError as error:
            self._refuse(f"undecodable request: {error}")
            return
        if not isinstance(request, int) or self._key is not None:
            self._refuse("expected one TensorRequest at a time")
            return
        self._key = request
        found = self._exposed.take(request, self._number, self._come)
        if found is not None:
            self._come(found)

    def disconnected(self) -> None:
        """Nobody waits any more."""
        self._open_connections.discard(self)
        if self._key is not None:
            self._exposed.cancel(self._key, self._come)

    def _come(self, found: ReadResult) -> None:
        """Called from any thread."""
        self._executor.submit(self._give, found)

    def _give(self, found: ReadResult) -> None:
        try:
            data = codec.encode(ExternalCommMessage(Tensor=found.result()))
        except IrError as failure:
            self._loop.call_soon_threadsafe(self._refuse, str(failure))
        else:
            self._loop.call_soon_threadsafe(self._send, data)

    def _send(self, data: bytes) -> None:
        self._key = None
        if not self.transport.is_disconnected:
            self.transport.send(WSMsgType.BINARY, data)

    def _refuse(self, reason: str) -> None:
        self._report(reason)
        self.close(None)
