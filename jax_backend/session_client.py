"""A client of Burn's remote protocol: what a Burn program is to a server, for tools that want to ask one.

    with SessionClient("ws://127.0.0.1:3000") as client:
        client.tell(RegisterTensor(..), RegisterOperation(..))
        content = client.ask(ReadTensor(..))

Source: burn-remote; `remote` is the other end.
"""

import asyncio
import secrets
from types import TracebackType
from typing import Final, Self

from picows import WSMsgType, ws_connect

from ir.errors import IrError, ProtocolError
from ir.wire.messages import (
    Close,
    RemoteMessage,
    SessionInit,
    TaskResponse,
    TaskResponseContent,
    decode_response,
    encode_batch,
)
from ir.wire.release import PROTOCOL_2
from ir.wire.values import SessionId
from jax_backend.frames import MessageListener

MAX_MESSAGE_BYTES: Final = 2**30
"""Burn's own limit."""


class SessionClient:
    """One session with a server, from its greeting to its end. One thread at a time may use it.

    Args:
        url: `ws://host:port`.
        device: number of the device of the server.
        timeout_s: for each answer.

    Raises:
        IrError: the server cannot be reached.
        ProtocolError: it refuses the session.
    """

    def __init__(self, url: str, *, device: int = 0, timeout_s: float = 300) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._session = SessionId(secrets.randbits(64))
        try:
            self._listener: Final = self._loop.run_until_complete(self._connect())
        except IrError:
            self._loop.close()
            raise
        greeting = self.ask(SessionInit(PROTOCOL_2.protocol, self._session, device, b""))
        if greeting.variant != "Init":
            self._end()
            raise ProtocolError(f"{url}: the server refuses the session: {greeting.payload}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def tell(self, *messages: RemoteMessage) -> None:
        """Send what has no answer."""
        self._loop.run_until_complete(self._send(encode_batch(messages, PROTOCOL_2)))

    def ask(self, message: RemoteMessage) -> TaskResponseContent:
        """Send a message and wait for its answer.

        Raises:
            IrError: the server ends, or does not answer in time.
        """
        self.tell(message)
        return self._loop.run_until_complete(self._answer()).content

    def close(self) -> None:
        """End the session."""
        self.tell(Close(self._session))
        self._end()

    async def _connect(self) -> "_Answers":
        try:
            _, listener = await ws_connect(
                _Answers, f"{self._url}/session", max_frame_size=MAX_MESSAGE_BYTES, websocket_handshake_timeout=15.0
            )
        except Exception as reason:  # sockets, names and handshakes each have their own
            raise IrError(f"{self._url}: cannot be reached: {reason}; is a server running there?") from reason
        assert isinstance(listener, _Answers)
        return listener

    async def _send(self, data: bytes) -> None:
        self._listener.transport.send(WSMsgType.BINARY, data)

    async def _answer(self) -> TaskResponse:
        try:
            data = await asyncio.wait_for(self._listener.queue.get(), self._timeout_s)
        except TimeoutError:
            raise IrError(f"{self._url}: no answer within {self._timeout_s:g} s") from None
        if data is None:
            raise IrError(f"{self._url}: the server ended the session")
        return decode_response(data)

    def _end(self) -> None:
        async def hang_up() -> None:
            self._listener.transport.disconnect()

        self._loop.run_until_complete(hang_up())
        self._loop.close()


class _Answers(MessageListener):
    """Keeps what the server sends; None is its end."""

    def __init__(self) -> None:
        super().__init__(MAX_MESSAGE_BYTES)
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def message(self, data: bytes) -> None:
        """An answer."""
        self.queue.put_nowait(data)

    def disconnected(self) -> None:
        """There are no more."""
        self.queue.put_nowait(None)
