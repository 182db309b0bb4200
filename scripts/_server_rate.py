"""How many small operations a server takes per second of its processor time, through the socket and without it.

A recorded session is replayed over and over: each time as a new session, whose programs are known and whose executions
are left out, so that what remains is socket, decoding, recording, cuts, keys, look-ups, bindings and answers.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax.numpy as jnp
from _processes import ENVIRONMENT
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from ir.ops.control import Drop, Init
from ir.wire.capture import CaptureReader
from ir.wire.messages import (
    ReadTensor,
    RegisterAndExecuteGraph,
    RegisterOperation,
    SessionInit,
    decode_batch,
    encode_batch,
)
from ir.wire.values import SessionId
from jax_backend.devices import find_devices
from jax_backend.executable import Executable, abstract_value
from jax_backend.remote import Host, RemoteSession
from jax_backend.server import Options, Server

WARM_UP, REPEATS = 2, 6


def frames_of(capture: Path, side: str = "c") -> list[bytes]:
    """The frames that one side sent."""
    with capture.open("rb") as stream:
        return [frame.data for frame in CaptureReader(stream) if frame.side == side]


def opening(frame: bytes, number: int) -> bytes:
    """The first frame of a session, under a session id of its own."""
    (init,) = decode_batch(frame)
    assert isinstance(init, SessionInit)
    return encode_batch([SessionInit(init.version, SessionId(number), 0, b"")])


def count_operations(frames: list[bytes]) -> tuple[int, int]:
    """Operation messages, and those of them that compute: no Init, no Drop."""
    ops = [m.operation.op for f in frames for m in decode_batch(f) if isinstance(m, RegisterOperation)]
    return len(ops), sum(not isinstance(op, Init | Drop) for op in ops)


def last_new_graph(capture: Path) -> int:
    """The number, from 1, of the read that follows the last graph that a client registered; 0 without graphs."""
    reads, last = 0, 0
    for frame in frames_of(capture):
        if b"RegisterAndExecuteGraph" in frame or b"ReadTensor" in frame:
            for message in decode_batch(frame):
                reads += isinstance(message, ReadTensor)
                if isinstance(message, RegisterAndExecuteGraph):
                    last = reads + 1
    return last


def leave_out_executions() -> None:
    """Let every program answer with arrays at hand."""
    made: dict[Executable, list[object]] = {}

    def answer(self: Executable, inputs: object, pack: object) -> list[object]:
        if self not in made:
            tensors = self.graph.tensors()
            avals = [abstract_value(tensors[n], None) for n in self.graph.outputs]
            made[self] = [jnp.zeros(a.shape, a.dtype) for a in avals]
        return made[self]

    Executable.__call__ = answer  # type: ignore[method-assign, assignment]


class Replayer(WSListener):
    """The client: sends a recorded session, and is done when as many answers came as were recorded."""

    def __init__(self, frames: list[bytes], num_answers: int) -> None:
        self._frames, self._missing = frames, num_answers
        self.done = asyncio.get_running_loop().create_future()

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Called by picows."""
        transport.send(WSMsgType.BINARY, self._frames[0])

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Called by picows: the first answer lets the rest go."""
        if self._frames:
            frames, self._frames = self._frames[1:], []
            for data in frames:
                transport.send(WSMsgType.BINARY, data)
        self._missing -= 1
        if not self._missing:
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """Called by picows."""
        self.done.set_result(None)


async def replay(port: int, capture: Path, first: int, times: int) -> None:
    """Replay a session `times` times, one after the other."""
    frames, num_answers = frames_of(capture), len(frames_of(capture, "s"))
    for number in range(first, first + times):
        sent = [opening(frames[0], number), *frames[1:]]
        _, client = await ws_connect(lambda s=sent: Replayer(s, num_answers), f"ws://127.0.0.1:{port}/session")
        await client.done  # type: ignore[attr-defined]


def through_socket(capture: Path, devices: str) -> dict[str, float]:
    """Seconds of one session, by the wall and by this process's processor time, its client in another process."""
    leave_out_executions()
    server = Server(Host(find_devices(devices)), Options(port=0), lambda *event: None)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    port = asyncio.run_coroutine_threadsafe(server.start(), loop).result()

    def client(first: int, times: int) -> None:
        command = [sys.executable, __file__, "replay", str(port), str(capture), str(first), str(times)]
        subprocess.run(command, check=True, env=ENVIRONMENT)

    client(1, WARM_UP)
    before = time.process_time()
    began = time.perf_counter()
    client(1000, REPEATS)
    wall, spent = time.perf_counter() - began, time.process_time() - before
    asyncio.run_coroutine_threadsafe(server.stop(5.0), loop).result()
    return {"wall": wall / REPEATS, "cpu": spent / REPEATS}


def without_socket(capture: Path, devices: str, profile: bool) -> dict[str, float]:
    """Seconds of this thread for one session, and of them for decoding alone."""
    leave_out_executions()
    frames = frames_of(capture)
    host = Host(find_devices(devices))

    def session(number: int) -> float:
        sent = [opening(frames[0], number), *frames[1:]]
        began = time.thread_time()
        session = RemoteSession(host, "bench", number)
        for frame in sent:
            for answer in session.handle(frame):
                session.encode(answer)
        session.close()
        return time.thread_time() - began

    def decode() -> float:
        began = time.thread_time()
        for frame in frames:
            decode_batch(frame)
        return time.thread_time() - began

    for number in range(WARM_UP):
        session(number)
    if profile:
        import cProfile

        cProfile.runctx("[session(n) for n in range(50, 60)]", {"session": session}, {}, sort="tottime")
    return {"cpu": min(map(session, range(100, 100 + REPEATS))), "decode": min(decode() for _ in range(REPEATS))}


def measured(kind: str, capture: Path, devices: str) -> dict[str, float]:
    """One of the measurements above, in a process of its own."""
    command = [sys.executable, __file__, kind, str(capture), devices]
    done = subprocess.run(command, check=True, env=ENVIRONMENT, capture_output=True, text=True)
    return json.loads(done.stdout)


def rows(name: str, capture: Path, devices: str) -> list[tuple[object, ...]]:
    """Rows `(what, messages per second, operations per second, us per message, budget)`."""
    messages, computing = count_operations(frames_of(capture))
    socket, local = measured("socket", capture, devices), measured("local", capture, devices)
    found = [
        ("socket + decode + record, per core-second", socket["cpu"], 100_000),
        ("  the same by the wall, with the client's process", socket["wall"], ""),
        ("decode + record, without the socket", local["cpu"], 200_000),
        ("  of it decoding", local["decode"], ""),
    ]
    return [
        (f"{name}: {what}", round(messages / s), round(computing / s), s / messages * 1e6, budget)
        for what, s, budget in found
    ]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["replay", port, capture, first, times]:
            asyncio.run(replay(int(port), Path(capture), int(first), int(times)))
        case ["socket", capture, devices]:
            print(json.dumps(through_socket(Path(capture), devices)))
        case ["local", capture, devices, *rest]:
            print(json.dumps(without_socket(Path(capture), devices, bool(rest))))
