"""WebSocket messages in and out of a connection, bounded at both ends."""

import asyncio
import socket
import threading
from typing import Final

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

CLOSE_REASON: Final = b"Peer is closing"
CLOSING_S: Final = 2.0
"""How long a peer may take to answer a close frame."""

_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""As Burn's own server: a peer that vanished is noticed within 30 s."""


class MessageListener(WSListener):
    """Joins the fragments of binary messages; text is skipped, pings are answered by picows.

    Subclasses take `message`, `peer_closes` and `disconnected`.
    """

    transport: WSTransport

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._parts: list[bytes] | None = None
        self._skips_text = False

    def connected(self) -> None:
        """The connection is open."""

    def message(self, data: bytes) -> None:
        """A whole binary message came."""
        raise NotImplementedError

    def peer_closes(self) -> None:
        """The peer wants to close; by default the connection is closed at once."""
        self.close(WSCloseCode.OK)

    def disconnected(self) -> None:
        """The connection is gone."""

    def close(self, code: WSCloseCode | int | None, reason: bytes = CLOSE_REASON) -> None:
        """Close with a close frame, or with `code` None drop the connection."""
        if self.transport.is_disconnected:
            return
        if code is None:
            self.transport.disconnect(graceful=False)
            return
        if not self.transport.is_close_frame_sent:
            self.transport.send_close(WSCloseCode(code), reason)
        if self.transport.close_handshake.recv is not None:
            self.transport.disconnect()
        asyncio.get_running_loop().call_later(CLOSING_S, self._abort)

    def _abort(self) -> None:
        if not self.transport.is_disconnected:
            self.transport.disconnect(graceful=False)

    # ---- picows

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Called by picows once the upgrade is done."""
        self.transport = transport
        keep_alive(transport.underlying_transport.get_extra_info("socket"))
        self.connected()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Called by picows for each frame, whose memory is only lent."""
        kind = frame.msg_type
        if kind == WSMsgType.BINARY and frame.fin:
            self.message(frame.get_payload_as_bytes())
        elif kind in (WSMsgType.BINARY, WSMsgType.TEXT, WSMsgType.CONTINUATION):
            self._fragment(kind, frame)
        elif kind == WSMsgType.CLOSE:
            if transport.is_close_frame_sent:
                transport.disconnect()
            else:
                self.peer_closes()

    def _fragment(self, kind: WSMsgType, frame: WSFrame) -> None:
        if kind != WSMsgType.CONTINUATION:
            self._parts, self._skips_text = [], kind == WSMsgType.TEXT
        if self._parts is None:
            self.close(WSCloseCode.PROTOCOL_ERROR, b"a continuation of nothing")
            return
        if not self._skips_text:
            self._parts.append(frame.get_payload_as_bytes())
        if sum(map(len, self._parts)) > self._max_message_bytes:
            self._parts = None
            self.close(WSCloseCode.MESSAGE_TOO_BIG, f"at most {self._max_message_bytes} bytes".encode())
        elif frame.fin:
            parts, self._parts = self._parts, None
            if not self._skips_text:
                self.message(b"".join(parts))

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Called by picows when the connection is gone."""
        self.disconnected()


class Outbox:
    """Messages on their way to a peer, put by other threads than the loop's.

    `put` waits while the peer does not read: at most `max_bytes` and the message at hand are held here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: WSTransport, max_bytes: int) -> None:
        self.sent_bytes = 0
        self._loop = loop
        self._transport = transport
        self._max_bytes = max_bytes
        self._unsent = 0
        self._is_paused = False
        self._is_closed = False
        self._room = threading.Condition()

    def put(self, data: bytes) -> bool:
        """Send `data` in its turn; False if the peer is gone."""
        with self._room:
            self._room.wait_for(lambda: self._is_closed or not (self._is_paused or self._unsent > self._max_bytes))
            if self._is_closed:
                return False
            self._unsent += len(data)
            self.sent_bytes += len(data)
            # Inside the lock, so that two threads keep their order.
            self._loop.call_soon_threadsafe(self._send, data)
        return True

    def _send(self, data: bytes) -> None:
        if not self._is_closed:
            self._transport.send(WSMsgType.BINARY, data)
        with self._room:
            self._unsent -= len(data)
            self._room.notify_all()

    def pause(self, is_paused: bool) -> None:
        """The socket's buffer is full, or has room again."""
        with self._room:
            self._is_paused = is_paused
            self._room.notify_all()

    def close(self) -> None:
        """The peer is gone."""
        with self._room:
            self._is_closed = True
            self._room.notify_all()


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel notice a peer that vanished without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
