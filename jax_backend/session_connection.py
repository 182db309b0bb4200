"""The connection of one session: a `RemoteSession`, the threads that drive it, and its two queues.

The worker thread takes one frame after the other: decodes, records, compiles, runs. An answer that is ready is sent
from there; a read that has to wait for the device goes to the reader thread, which exists from the first such read on.
"""

import asyncio
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Final

from picows import WSCloseCode

from ir.errors import IrError
from ir.tensor import TensorData
from ir.wire.capture import CaptureWriter, Side
from jax_backend.answers import Answer, failure_of, is_ready, response_of
from jax_backend.dispatch import Handed, LocalTransfer, RemoteTransfer, Transfer
from jax_backend.frames import MessageListener, Outbox
from jax_backend.metrics import Counts
from jax_backend.remote import End, Host, RemoteSession

MAX_QUEUED_FRAMES: Final = 64
MAX_QUEUED_BYTES: Final = 64 << 20
"""What waits for the worker, and what waits for the client, until reading or working stops; one message may be more."""

MAX_REPORTED_FAILURES: Final = 20
"""Failed answers of one session that are logged."""

Report = Callable[[str, int | None, str, dict[str, Any]], None]
"""Takes an event: its name, the session, one line for people, and its fields."""


@dataclass(frozen=True)
class Shared:
    """What the connections of a server share; times in seconds.

    `fetch` gets a tensor from another server; it runs on the loop. `open_capture` gives the file that a session is
    recorded to. `started` and `ended` are called on the loop.
    """

    host: Host
    report: Report
    fetch: Callable[[RemoteTransfer], Coroutine[Any, Any, TensorData]]
    open_capture: Callable[[int], BinaryIO | None]
    started: Callable[["SessionConnection"], None]
    ended: Callable[["SessionConnection"], None]
    max_message_bytes: int
    handshake_s: float
    transfer_s: float


class SessionConnection(MessageListener):
    """One client. Methods without a note run on the event loop."""

    session: RemoteSession
    peer: str

    def __init__(self, number: int, shared: Shared) -> None:
        super().__init__(shared.max_message_bytes)
        self.number: Final = number
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._received = Counts()
        self._handled_frames = 0
        self._handled_bytes = 0
        self._is_paused = False
        self._is_draining = False
        self._closed_because = "the client went away"
        self._is_gone = False
        self._arrival: SimpleQueue[Handed | TensorData] | None = None
        self._reader: _Reader | None = None
        self._failures = 0
        self._worker_cpu_s = 0.0
        self._capture: _Capture | None = None

    @property
    def end(self) -> End:
        """Why the session is over, once it is."""
        return self.session.end or End(self._closed_because, is_error=False)

    @property
    def counts(self) -> Counts:
        """What this session has done so far."""
        recorder = self.session.recorder
        counts = Counts(
            sessions=recorder is not None,
            refused=recorder is None and self.session.end is not None,
            frames=self._received.frames,
            received_bytes=self._received.received_bytes,
            sent_bytes=self._outbox.sent_bytes,
        )
        if recorder is not None:
            stats = recorder.stats
            counts.operations, counts.programs, counts.reads = stats.operations, stats.programs, stats.reads
            counts.failures = stats.failures
            reader_cpu_s = self._reader.cpu_s if self._reader is not None else 0.0
            counts.session_cpu_seconds = self._worker_cpu_s + reader_cpu_s + stats.launcher_cpu_s
            counts.program_cpu_seconds = stats.program_cpu_s
        return counts

    # ---- the event loop's side

    def connected(self) -> None:
        """Begin to work."""
        address = self.transport.underlying_transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}"
        # The best there is: processes of one machine share an address, and nothing on the wire tells them apart.
        self.session = RemoteSession(self._shared.host, address[0], self.number)
        self._outbox = Outbox(self._loop, self.transport, MAX_QUEUED_BYTES)
        self._loop.call_later(self._shared.handshake_s, self._check_handshake)
        if (stream := self._shared.open_capture(self.number)) is not None:
            self._capture = _Capture(stream, self.peer)
        self._shared.started(self)
        threading.Thread(target=self._work, name=f"session {self.number}", daemon=True).start()

    def message(self, data: bytes) -> None:
        """Queue a frame; beyond the bounds of the queue, stop reading."""
        if self._is_draining:
            return
        self._received.frames += 1
        self._received.received_bytes += len(data)
        self._inbox.put(data)
        if self._is_full(1.0) and not self._is_paused:
            self._is_paused = True
            self.transport.underlying_transport.pause_reading()
            self._resume_if_room()  # the worker may have emptied the queue before it could see the pause

    def peer_closes(self) -> None:
        """An orderly end: what is queued is still done."""
        self.drain("closed by the client")

    def drain(self, why: str) -> None:
        """Read no more, do what is queued, answer, and close."""
        self._is_draining = True
        self._closed_because = why
        self._inbox.put(None)
        self._give_up_waiting(why)

    def pause_writing(self) -> None:
        """Called by picows: the client does not read."""
        self._outbox.pause(True)

    def resume_writing(self) -> None:
        """Called by picows: it reads again."""
        self._outbox.pause(False)

    def disconnected(self) -> None:
        """Nobody is there any more: whatever the worker does ends after the task at hand."""
        self._is_gone = True
        self._outbox.close()
        self._inbox.put(None)
        self._give_up_waiting("the client is gone")
        self.session.give_up("the client is gone")

    def _check_handshake(self) -> None:
        if self.session.recorder is None and self.session.end is None and not self._is_gone:
            self._shared.report("refused", None, f"{self.peer}: no handshake in {self._shared.handshake_s:g} s", {})
            self.close(WSCloseCode.OK)

    def _is_full(self, share: float) -> bool:
        frames = self._received.frames - self._handled_frames
        queued = self._received.received_bytes - self._handled_bytes
        return frames > MAX_QUEUED_FRAMES * share or queued > MAX_QUEUED_BYTES * share

    def _resume_if_room(self) -> None:
        if self._is_paused and not self._is_full(0.5) and not self._is_gone:
            self._is_paused = False
            self.transport.underlying_transport.resume_reading()

    def _give_up_waiting(self, why: str) -> None:
        if (arrival := self._arrival) is not None:
            arrival.put(IrError(f"the tensor never came: {why}"))

    def _finish(self) -> None:
        self._is_draining = True
        self.close(self.end.close_code)
        self._shared.ended(self)

    # ---- the worker thread

    def _work(self) -> None:
        session = self.session
        try:
            while session.end is None and not self._is_gone and (frame := self._inbox.get()) is not None:
                self._handle(frame)
        except Exception:
            self._end_by_defect()
        finally:
            if self._reader is not None:
                self._reader.finish()
            session.close()
            if self._capture is not None:
                self._capture.close()
            self._loop.call_soon_threadsafe(self._finish)

    def _end_by_defect(self) -> None:
        """A defect of ours, or of what we write to, ends this session, not the server; called from either thread."""
        self.session.end = End(f"defect: {traceback.format_exc()}", WSCloseCode.INTERNAL_ERROR.value)
        self._inbox.put(None)

    def _handle(self, frame: bytes) -> None:
        session = self.session
        is_new = session.recorder is None
        if self._capture is not None:
            self._capture.write("c", frame)
        answers = session.handle(frame)
        self._answer(answers)
        if is_new and session.recorder is not None:
            self._report_opened()
        while (awaited := session.awaits) is not None and not self._is_gone:
            self._answer(session.supply(self._wait_for(awaited)))
        self._handled_frames += 1
        # Asking for it takes 1.5 us here, as long as half an operation.
        if answers or self._handled_frames % 16 == 0:
            self._worker_cpu_s = time.thread_time()
        self._handled_bytes += len(frame)
        if self._is_paused and not self._is_full(0.5):
            self._loop.call_soon_threadsafe(self._resume_if_room)

    def _report_opened(self) -> None:
        session = self.session
        recorder = session.recorder
        assert recorder is not None
        protocol = session.release.protocol
        fields = {"peer": self.peer, "device": str(recorder.device), "protocol": protocol}
        text = f"{self.peer} on {recorder.device}, protocol {protocol}"
        self._shared.report("opened", self.number, text, fields)

    def _answer(self, answers: list[Answer]) -> None:
        for answer in answers:
            if is_ready(answer):  # answers may overtake each other: clients go by the request id
                self._send(answer)
                continue
            if self._reader is None:
                self._reader = _Reader(self._send, self._end_by_defect, f"reader of session {self.number}")
            self._reader.put(answer)

    def _send(self, answer: Answer) -> None:
        """Wait for an answer and send it; called from the worker and from the reader."""
        if self._is_gone:
            return
        response = response_of(answer)
        frame = self.session.pack(response)
        if self._capture is not None:
            self._capture.write("s", frame)
        self._outbox.put(frame)
        if failure := failure_of(response.content):
            self._failures += 1
            if self._failures <= MAX_REPORTED_FAILURES:
                name = response.content.variant
                fields = {"request": response.id, "answer": name, "failure": failure}
                self._shared.report("failed", self.number, f"{name} {response.id}: {failure}", fields)

    def _wait_for(self, awaited: Transfer) -> Handed | TensorData:
        arrival: SimpleQueue[Handed | TensorData] = SimpleQueue()
        self._arrival = arrival
        timeout_s = self._shared.transfer_s
        try:
            if self._is_gone:
                return IrError("the client is gone")
            if isinstance(awaited, LocalTransfer):
                cancel = self._take_local(awaited, arrival)
            else:
                cancel = self._take_remote(awaited, arrival)
            try:
                return arrival.get(timeout=timeout_s)
            except Empty:
                return IrError(f"{type(awaited).__name__}: nobody exposed the tensor within {timeout_s:g} s")
            finally:
                cancel()
        finally:
            self._arrival = None

    def _take_local(self, awaited: LocalTransfer, arrival: "SimpleQueue[Handed | TensorData]") -> Callable[[], object]:
        then = arrival.put
        value = self._shared.host.transfers.local.take(awaited.key, self.number, then)
        if value is not None:
            arrival.put(value)
        return lambda: self._shared.host.transfers.local.cancel(awaited.key, then)

    def _take_remote(
        self, awaited: RemoteTransfer, arrival: "SimpleQueue[Handed | TensorData]"
    ) -> Callable[[], object]:
        async def fetched() -> None:
            try:
                arrival.put(await self._shared.fetch(awaited))
            except IrError as failure:
                arrival.put(failure)

        return asyncio.run_coroutine_threadsafe(fetched(), self._loop).cancel


class _Reader:
    """Waits for reads in their order, in a thread of its own; an exception in `send` goes to `fail`."""

    def __init__(self, send: Callable[[Answer], None], fail: Callable[[], None], name: str) -> None:
        self._send = send
        self._fail = fail
        self.cpu_s = 0.0
        self._queue: SimpleQueue[Answer | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, answer: Answer) -> None:
        self._queue.put(answer)

    def finish(self) -> None:
        """Wait until everything that was put has been sent."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (answer := self._queue.get()) is not None:
                self._send(answer)
                self.cpu_s = time.thread_time()
        except Exception:
            self._fail()


class _Capture:
    """Writes what goes both ways; two threads send answers."""

    def __init__(self, stream: BinaryIO, peer: str) -> None:
        self._stream = stream
        self._writer = CaptureWriter(stream, "/session", peer)
        self._began = time.perf_counter()
        self._lock = threading.Lock()

    def write(self, side: Side, frame: bytes) -> None:
        with self._lock:
            self._writer.write(round((time.perf_counter() - self._began) * 1e6), side, frame)

    def close(self) -> None:
        with self._lock:
            self._stream.close()
