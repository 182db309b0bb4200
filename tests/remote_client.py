"""A client of the remote protocol, and a server to try it on, in one process."""

import asyncio
import base64
import contextlib
import gc
import os
import socket
import struct
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self
from urllib.parse import urlsplit

import jax
import numpy as np

import ir
from ir import F32, operation, tensor
from ir.tensor import NOT_INIT, READ_ONLY, READ_WRITE, TensorData, TensorId, TensorIr, TensorStatus
from ir.wire.messages import (
    ReadTensor,
    RegisterOperation,
    RegisterTensor,
    RemoteMessage,
    SessionInit,
    SyncBackend,
    TaskResponse,
    TaskResponseContent,
    decode_response,
    encode_batch,
)
from ir.wire.release import PROTOCOL_2
from ir.wire.values import SessionId, StreamId
from jax_backend.cache import ProgramCache
from jax_backend.host import from_numpy, to_numpy
from jax_backend.metrics import Snapshot
from jax_backend.remote import Host
from jax_backend.server import Options, Server

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
STREAM = StreamId(0)
DIMS = (2, 3)
SMALL = 1 << 20
"""The limit of a message of the server that most tests use; Burn's is 1 GiB."""
PROGRAMS = ProgramCache()
"""Shared by all servers of a test run: a program that every one of them needs is compiled once."""
_session_ids = count(1000)


def frames(*messages: RemoteMessage) -> bytes:
    return encode_batch(messages, PROTOCOL_2)


def t(id: int, dims: tuple[int, ...] = DIMS, status: TensorStatus = READ_ONLY) -> TensorIr:
    return tensor(id, dims, F32, status)


def upload(id: int, value: float, dims: tuple[int, ...] = DIMS) -> RegisterTensor:
    return RegisterTensor(STREAM, TensorId(id), data(value, dims))


def data(value: float, dims: tuple[int, ...] = DIMS) -> TensorData:
    return from_numpy(np.full(dims, value, np.float32), F32)


def add(lhs: int, rhs: int, out: int, dims: tuple[int, ...] = DIMS) -> RegisterOperation:
    return RegisterOperation(STREAM, operation(ir.Add(t(lhs, dims), t(rhs, dims), t(out, dims, NOT_INIT))))


def drop(id: int) -> RegisterOperation:
    return RegisterOperation(STREAM, operation(ir.Drop(t(id, (), READ_WRITE))))


def read(request: int, id: int, dims: tuple[int, ...] = DIMS, status: TensorStatus = READ_ONLY) -> ReadTensor:
    return ReadTensor(request, STREAM, t(id, dims, status))


def sync(request: int) -> SyncBackend:
    return SyncBackend(request, STREAM)


def init(*, version: int = 2, device: int = 0, token: bytes = b"", session: int | None = None) -> SessionInit:
    return SessionInit(version, SessionId(next(_session_ids) if session is None else session), device, token)


def values(content: TaskResponseContent) -> np.ndarray:
    """The data of a read that went well."""
    found: Any = content.ReadTensor
    assert isinstance(found.Ok, TensorData), found
    return to_numpy(found.Ok)


def failure(content: TaskResponseContent) -> str:
    """The reason of an answer that went wrong."""
    return content.payload.Err.Generic.reason


class Refused(Exception):
    """The upgrade got another answer than 101."""


class Closed(Exception):
    """The server closed; `code` is that of its close frame, 1006 without one."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


class WebSocket:
    """A WebSocket that hides nothing: frames as they are, and nothing is read unless it is asked for."""

    def __init__(self, url: str, headers: str = "") -> None:
        parts = urlsplit(url)
        self.raw = socket.create_connection((parts.hostname, parts.port), timeout=60)
        self.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        self.raw.sendall(
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n".encode()
        )
        self._file = self.raw.makefile("rb")
        head = b"".join(iter(self._file.readline, b"\r\n"))
        if b" 101 " not in head.splitlines()[0]:
            refusal = (head + self._file.read()).decode()
            self.hang_up()
            raise Refused(refusal)

    def send(self, data: bytes, *, opcode: int = BINARY, fin: bool = True) -> None:
        """One frame."""
        self.raw.sendall(masked(data, opcode=opcode, fin=fin))

    def receive(self) -> bytes:
        """The next message.

        Raises:
            Closed: the server closed.
        """
        while True:
            opcode, data = self.receive_frame()
            if opcode == CLOSE:
                self.raw.sendall(masked(data, opcode=CLOSE))
                self.hang_up()
                raise Closed(int.from_bytes(data[:2], "big"))
            if opcode == BINARY:
                return data

    def receive_frame(self) -> tuple[int, bytes]:
        try:
            head = self._file.read(2)
            if len(head) < 2:
                raise Closed(1006)
            size = head[1]
            if size > 125:
                size = int.from_bytes(self._file.read(2 if size == 126 else 8), "big")
            return head[0] & 15, self._file.read(size)
        except ConnectionError:
            raise Closed(1006) from None

    def close_code(self) -> int:
        """Wait for the server to close."""
        try:
            while True:
                self.receive()
        except Closed as closed:
            self.hang_up()
            return closed.code

    def hang_up(self) -> None:
        """Be gone, without a word."""
        self._file.close()
        self.raw.close()


def masked(data: bytes, *, opcode: int = BINARY, fin: bool = True) -> bytes:
    """A frame as clients send it, with a mask of zeros."""
    size = len(data)
    if size < 126:
        length = bytes([0x80 | size])
    else:
        length = struct.pack(">BH", 0xFE, size) if size < 65536 else struct.pack(">BQ", 0xFF, size)
    return bytes([0x80 * fin | opcode]) + length + b"\0\0\0\0" + data


class Client(WebSocket):
    """A Burn client. As a context manager it greets first and is gone in the end; `ask` waits for the next answer."""

    greeting: TaskResponseContent

    def __init__(self, url: str, **handshake: Any) -> None:
        super().__init__(f"{url}/session")
        self._handshake = handshake

    def hello(self) -> TaskResponseContent:
        self.tell(init(**self._handshake))
        self.greeting = self.answer().content
        return self.greeting

    def tell(self, *messages: RemoteMessage) -> None:
        self.send(frames(*messages))

    def answer(self) -> TaskResponse:
        return decode_response(self.receive())

    def ask(self, *messages: RemoteMessage) -> TaskResponseContent:
        """Send, and take the next answer."""
        self.tell(*messages)
        return self.answer().content

    def __enter__(self) -> Self:
        self.hello()
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()


@dataclass
class RunningServer:
    """A server on a thread of its own."""

    url: str
    server: Server
    loop: asyncio.AbstractEventLoop
    events: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def snapshot(self) -> Snapshot:
        async def take() -> Snapshot:
            return self.server.snapshot()

        return asyncio.run_coroutine_threadsafe(take(), self.loop).result(60)

    def wait_until_empty(self, timeout_s: float = 60) -> None:
        """Wait until no session, tensor or exposure is left."""
        wait_for(lambda: is_empty(self.snapshot()), timeout_s)

    def stop(self, grace_s: float = 30) -> bool:
        return asyncio.run_coroutine_threadsafe(self.server.stop(grace_s), self.loop).result(60)


def is_empty(snapshot: Snapshot) -> bool:
    return not (snapshot.open_sessions or snapshot.live_tensors or snapshot.exposed_tensors)


def wait_for(is_true: Any, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


@contextlib.contextmanager
def running(host: Host, **options: Any) -> Generator[RunningServer]:
    """Serve `host` on a free port."""
    events: list[tuple[str, str]] = []
    started: Any = threading.Event()
    made: list[RunningServer] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = Server(host, Options(port=0, **options), lambda name, _, text, __: events.append((name, text)))
        port = await server.start()
        made.append(RunningServer(f"ws://127.0.0.1:{port}", server, loop, events))
        started.set()
        await ended.wait()

    ended = asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(60)
    try:
        yield made[0]
    finally:
        made[0].stop()
        made[0].loop.call_soon_threadsafe(ended.set)
        thread.join(60)


@contextlib.contextmanager
def undisturbed(server: RunningServer) -> Iterator[Client]:
    """A neighbour of whatever happens inside: it must not notice, and in the end nothing may be left of either."""
    server.wait_until_empty()
    before = live_bytes()
    with Client(server.url) as neighbour:
        neighbour.ask(upload(0, 2.0), sync(0))  # it is there before another of these counts bytes
        yield neighbour
        np.testing.assert_array_equal(values(neighbour.ask(add(0, 0, 1), read(0, 1))), np.full(DIMS, 4.0))
    server.wait_until_empty()
    wait_for(lambda: live_bytes() <= before)


def live_bytes() -> int:
    """Bytes of all arrays of this process."""
    gc.collect()
    return sum(a.nbytes for a in jax.live_arrays())
