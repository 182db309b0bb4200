"""The processes of `bench_server.py`: servers that are measured, and programs that print a JSON line per step."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # works from a checkout that is not installed as well
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


class Failed(RuntimeError):
    """A program under measurement ended with an error, or was ended because its time was over."""


@dataclass(frozen=True)
class Steps:
    """When each step ended, in seconds since 1970, from step 0 on, and the losses that were read, by step."""

    ended_s: list[float] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)

    def block_ms(self, first: int, block: int, last: int | None = None) -> list[float]:
        """Milliseconds per step of each block of `block` steps from `first` to `last`; each block ends with a read."""
        ends = self.ended_s[first : None if last is None else last + 1 : block]
        if len(ends) < 2:
            raise Failed(f"{len(self.ended_s) - 1} steps are too few: {first} to warm up, then blocks of {block}")
        return [(b - a) / block * 1e3 for a, b in pairwise(ends)]

    def until_s(self, step: int) -> float:
        """Seconds from the start to the end of `step`."""
        return self.ended_s[step] - self.ended_s[0]


def run(
    command: Sequence[str],
    at_step: Callable[[int], None] | None = None,
    *,
    stops: Collection[int] = (),
    until: float = math.inf,
    **environment: str,
) -> Steps:
    """Run a program that prints its steps; `at_step` is called as each line comes.

    Args:
        command: of the program.
        at_step: gets the number of the step.
        stops: steps after which the program stands still while `at_step` is called.
        until: on `time.monotonic`: when the program is ended, whatever it does.
        environment: variables besides our own.

    Raises:
        Failed: the program did, or its time was over.
    """
    steps = Steps()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **environment}
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said: list[str] = []
    listener = threading.Thread(target=lambda: said.extend(process.stderr or ()))
    listener.start()
    timer = threading.Timer(min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX), process.kill)
    timer.start()
    try:
        for line in process.stdout:
            found = json.loads(line)
            steps.ended_s.append(found["ended_s"])
            if found["loss"] is not None:
                steps.losses[found["step"]] = found["loss"]
            if at_step is not None:
                with _stopped(process) if found["step"] in stops else contextlib.nullcontext():
                    at_step(found["step"])
    except BaseException:
        process.kill()
        raise
    finally:
        timer.cancel()
        code = process.wait()
        listener.join()
    if code and time.monotonic() >= until:
        raise Failed(f"its time was over after {max(len(steps.ended_s) - 1, 0)} steps")
    if code:
        raise Failed(f"{' '.join(command)}: {''.join(said)[-2000:]}")
    return steps


@contextlib.contextmanager
def _stopped(process: subprocess.Popen[str]) -> Generator[None, None, None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class Server:
    """`burn-xla serve` in a process of its own; a context manager.

    Args:
        devices: as its option.
        cache: folder of compiled programs; by default none is kept.
        options: further options.
        trace: folder for jax's profiler; `start_trace` and `stop_trace` then work.
        until: on `time.monotonic`: how long it may take to listen.
    """

    def __init__(
        self,
        devices: str,
        *options: str,
        cache: Path | None = None,
        trace: Path | None = None,
        until: float = math.inf,
    ) -> None:
        start = ["-m", "jax_backend"] if trace is None else [str(ROOT / "scripts/_traced_server.py"), str(trace)]
        command = [sys.executable, *start, "serve", "--port", "0", "--json-log", "--devices", devices]
        command += ["--grace", "5", *options]  # seconds to end in, whatever is being compiled
        command += [] if cache else ["--no-cache"]
        self.events: list[dict[str, Any]] = []
        self._until = until
        self._trace = trace
        self._listening = threading.Event()
        given = {**ENVIRONMENT, **({"BURN_XLA_CACHE": str(cache)} if cache else {})}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=given)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> "Server":
        self._listening.wait(min(max(0.0, self._until - time.monotonic()), threading.TIMEOUT_MAX))
        if self._process.poll() is not None or not self._listening.is_set():
            self.__exit__()
            raise Failed(f"the server did not start: {self.events[-20:]}")
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(40.0)  # sessions get 30 s to end
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()

    @property
    def is_running(self) -> bool:
        """The process has not ended."""
        return self._process.poll() is None

    @property
    def url(self) -> str:
        """What clients connect to."""
        return next(event["url"] for event in self.events if event["event"] == "listening")

    @property
    def compiles(self) -> list[dict[str, Any]]:
        """The events of compiled or loaded programs."""
        return [event for event in self.events if event["event"] == "compiled"]

    def metrics(self) -> dict[str, float]:
        """The figures of `/metrics` that have no label, by name without the prefix.

        Raises:
            Failed: the server does not answer.
        """
        try:
            with urllib.request.urlopen(self.url.replace("ws://", "http://") + "/metrics", timeout=60) as page:
                lines = page.read().decode().splitlines()
        except OSError as reason:
            raise Failed(f"the server does not say how it is: {reason}") from reason
        pairs = (line.split() for line in lines if not line.startswith("#") and "{" not in line)
        return {name.removeprefix("burn_xla_"): float(value) for name, value in pairs}

    def resident_bytes(self) -> int:
        """Memory in use."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def start_trace(self, timeout_s: float = 60.0) -> None:
        """Start jax's profiler; it takes seconds the first time."""
        self._toggle_trace("tracing", timeout_s)

    def stop_trace(self, timeout_s: float = 60.0) -> Path:
        """End it. Returns the folder that it has written to."""
        self._toggle_trace("traced", timeout_s)
        assert self._trace is not None
        return max(self._trace.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime).parent

    def _toggle_trace(self, expected: str, timeout_s: float) -> None:
        first = len(self.events)
        self._process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + timeout_s
        while not any(event.get("text", "").strip() == expected for event in self.events[first:]):
            if time.monotonic() > deadline:
                raise Failed(f"the profiler did not say {expected!r} within {timeout_s:g} s")
            time.sleep(0.02)

    def _listen(self) -> None:
        for line in self._process.stderr or ():
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.events.append({"event": "text", "text": line})
            if self.events[-1]["event"] == "listening":
                self._listening.set()
        self._listening.set()


@contextlib.contextmanager
def floor_server() -> Generator[str, None, None]:
    """The server that computes nothing, as the URL that clients take."""
    command = [sys.executable, str(ROOT / "scripts/_floor_server.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout is not None
    try:
        yield f"ws://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
