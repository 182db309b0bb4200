"""Recorded sessions as files.

A capture (`.bxs`) is a sequence of msgpack values: a header map `{"format": "burn-xla-capture", "version": 1, "path",
"peer"}`, then one array `[microseconds since the start, "c" | "s", frame]` per WebSocket message, frames as they were
sent by the client or by the server.

Text is accepted for the same content: one JSON object per line, a client's message (`{"Task": ..}`, `{"Init": ..}`,
`{"Close": ..}`) or a server's answer (`{"content": .., "id": ..}`), as serde_json writes them. Empty lines are skipped.

Both are read as a stream: one entry is in memory at a time.
"""

import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ir.errors import WireError
from ir.wire import codec
from ir.wire.messages import (
    RemoteMessage,
    TaskResponse,
    decode_batch,
    decode_response,
    encode_batch,
    encode_response,
    message_from_named,
)
from ir.wire.release import PROTOCOL_2, Release

Side: TypeAlias = Literal["c", "s"]

FORMAT: Final = "burn-xla-capture"
VERSION: Final = 1
MAX_FRAME_BYTES: Final = 2**30
"""Burn's own limit of a message."""

_MAX_TEXT_BYTES = 65_535
_PIECE_BYTES = 2**20


class Header(NamedTuple):
    """The WebSocket path of a recorded session, and who took part."""

    path: str
    peer: str


class Frame(NamedTuple):
    """One recorded WebSocket message: when, from the client ("c") or the server ("s"), and its bytes."""

    microseconds: int
    side: Side
    data: bytes


class CaptureWriter:
    """Writes a capture to a binary stream."""

    def __init__(self, stream: BinaryIO, path: str, peer: str) -> None:
        self._stream = stream
        header = {"format": FORMAT, "version": VERSION, "path": path, "peer": peer}
        stream.write(msgspec.msgpack.encode(header))

    def write(self, microseconds: int, side: Side, data: bytes | memoryview) -> None:
        """Append a frame that came `microseconds` after the start."""
        self._stream.write(msgspec.msgpack.encode((microseconds, side, data)))


class CaptureReader:
    """Reads a capture from a binary stream; iterating gives its frames.

    Raises:
        WireError: the stream is no capture, has another version, or ends within a frame.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._offset = 0
        found = self._header()
        if found.get("format") != FORMAT:
            raise WireError("header.format", f"expected {FORMAT!r}, got {found.get('format')!r}: this is no capture")
        if found.get("version") != VERSION:
            raise WireError("header.version", f"expected {VERSION}, got {found.get('version')!r}")
        self.header = Header(self._text(found, "path"), self._text(found, "peer"))

    def __iter__(self) -> Iterator[Frame]:
        number = 0
        while head := self._stream.read(1):
            yield self._frame(head[0], f"frame {number}")
            number += 1

    def _frame(self, head: int, place: str) -> Frame:
        start = self._offset
        self._offset += 1
        if head != 0x93:
            raise WireError(place, f"expected an array of 3 at byte {start}, got the byte {head:#04x}")
        microseconds, side, data = (self._value(f"{place}.{name}") for name in ("microseconds", "side", "data"))
        if not isinstance(microseconds, int) or microseconds < 0:
            raise WireError(f"{place}.microseconds", f"expected a number of microseconds, got {microseconds!r}")
        if side not in _SIDES:
            raise WireError(f"{place}.side", f"expected 'c' or 's', got {side!r}")
        if not isinstance(data, bytes):
            raise WireError(f"{place}.data", f"expected bytes, got {type(data).__name__}")
        return Frame(microseconds, _SIDES[side], data)

    def _header(self) -> dict[str, object]:
        head = self._byte("header")
        if not 0x80 <= head <= 0x8F:
            raise WireError("header", f"expected a msgpack map, got the byte {head:#04x}: this is no capture")
        found: dict[str, object] = {}
        for _ in range(head & 15):
            key = self._value("header")
            if not isinstance(key, str):
                raise WireError("header", f"expected a name, got {key!r}: this is no capture")
            found[key] = self._value(f"header.{key}")
        return found

    @staticmethod
    def _text(found: dict[str, object], name: str) -> str:
        value = found.get(name)
        if not isinstance(value, str):
            raise WireError(f"header.{name}", f"expected text, got {value!r}")
        return value

    def _value(self, place: str) -> int | str | bytes:
        """The next value: an unsigned integer, text, or bytes, which is all that a capture holds."""
        head = self._byte(place)
        if head < 0x80:
            return head
        if 0xA0 <= head <= 0xBF:
            return self._decoded(head & 31, place)
        if head in _INTEGERS:
            return int.from_bytes(self._bytes(_INTEGERS[head], place), "big")
        if head in _TEXTS:
            return self._decoded(self._size(_TEXTS[head], _MAX_TEXT_BYTES, place), place)
        if head in _BINARIES:
            return self._bytes(self._size(_BINARIES[head], MAX_FRAME_BYTES, place), place)
        raise WireError(place, f"expected an integer, text or bytes at byte {self._offset - 1}, got {head:#04x}")

    def _size(self, width: int, limit: int, place: str) -> int:
        size = int.from_bytes(self._bytes(width, place), "big")
        if size > limit:
            raise WireError(place, f"expected at most {limit} bytes, got {size}")
        return size

    def _decoded(self, size: int, place: str) -> str:
        try:
            return self._bytes(size, place).decode()
        except UnicodeDecodeError as error:
            raise WireError(place, "expected UTF-8 text") from error

    def _byte(self, place: str) -> int:
        return self._bytes(1, place)[0]

    def _bytes(self, size: int, place: str) -> bytes:
        """The next `size` bytes, read in pieces: a size that the file does not keep costs no memory."""
        pieces: list[bytes] = []
        missing = size
        while missing:
            piece = self._stream.read(min(missing, _PIECE_BYTES))
            if not piece:
                raise WireError(place, f"the file ends at byte {self._offset}, {missing} bytes short")
            pieces.append(piece)
            missing -= len(piece)
            self._offset += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_SIDES: dict[object, Side] = {"c": "c", "s": "s"}
_INTEGERS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BINARIES = {0xC4: 1, 0xC5: 2, 0xC6: 4}


def write_messages(
    target: str | os.PathLike[str], messages: Iterable[RemoteMessage | TaskResponse], peer: str, path: str = "/session"
) -> None:
    """Write a session to a capture, one frame per message or answer, a microsecond apart.

    Args:
        target: the file.
        messages: in order.
        peer: who took part, for whoever looks.
        path: of the WebSocket.
    """
    with open(target, "wb") as stream:
        writer = CaptureWriter(stream, path, peer)
        for time_us, message in enumerate(messages):
            if isinstance(message, TaskResponse):
                writer.write(time_us, "s", encode_response(message))
            else:
                writer.write(time_us, "c", encode_batch([message]))


def read_messages(
    path: str | os.PathLike[str], release: Release = PROTOCOL_2
) -> Iterator[RemoteMessage | TaskResponse]:
    """The messages and answers of a recorded session in the order they were sent, from a capture or from JSON lines.

    Raises:
        WireError: the file is neither, or a message does not decode; the path starts at the frame or line.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as stream:
        first = stream.read(1)
        if not first:
            raise WireError("header", "expected a capture or JSON lines, got an empty file")
        stream.seek(0)
        yield from _from_lines(stream, release) if first in b"{ \r\n\t" else _from_frames(stream, release)


def _from_frames(stream: BinaryIO, release: Release) -> Iterator[RemoteMessage | TaskResponse]:
    for number, frame in enumerate(CaptureReader(stream)):
        try:
            found = decode_batch(frame.data, release) if frame.side == "c" else (decode_response(frame.data, release),)
        except WireError as error:
            raise WireError(f"frame {number}: {error.path}", error.reason) from error
        yield from found


def _from_lines(stream: BinaryIO, release: Release) -> Iterator[RemoteMessage | TaskResponse]:
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            value = codec.parse_json(line)
            if isinstance(value, dict) and "content" in value:
                yield codec.from_named(value, TaskResponse, release)
            else:
                yield message_from_named(value, release)
        except WireError as error:
            raise WireError(f"line {number}: {error.path}", error.reason) from error
