"""The processes of `bench_server.py`: servers that are measured, and programs that print a JSON line per step."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # works from a checkout that is not installed as well
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


class Failed(RuntimeError):
    """A program under measurement ended with an error."""


@dataclass(frozen=True)
class Steps:
    """When each step ended, in seconds since 1970, from step 0 on, and the losses that were read, by step."""

    ended_s: list[float] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)

    def median_ms(self, first: int, block: int) -> float:
        """Milliseconds per step from `first` on: the median over blocks of `block` steps, each ended by a read."""
        ends = self.ended_s[first::block]
        if len(ends) < 2:
            raise Failed(f"{len(self.ended_s) - 1} steps are too few: {first} to warm up, then blocks of {block}")
        return statistics.median((b - a) / block for a, b in pairwise(ends)) * 1e3

    def until_s(self, step: int) -> float:
        """Seconds from the start to the end of `step`."""
        return self.ended_s[step] - self.ended_s[0]


def run(command: Sequence[str], at_step: Callable[[int], None] | None = None, **environment: str) -> Steps:
    """Run a program that prints its steps; `at_step` is called as each line comes.

    Raises:
        Failed: the program did.
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
    for line in process.stdout:
        found = json.loads(line)
        steps.ended_s.append(found["ended_s"])
        if found["loss"] is not None:
            steps.losses[found["step"]] = found["loss"]
        if at_step is not None:
            at_step(found["step"])
    listener.join()
    if process.wait():
        raise Failed(f"{' '.join(command)}: {''.join(said)[-2000:]}")
    return steps


class Server:
    """`burn-xla serve` in a process of its own; a context manager.

    Args:
        devices: as its option.
        cache: folder of compiled programs; by default none is kept.
        options: further options.
        trace: folder for jax's profiler; `toggle_trace` then works.
    """

    def __init__(self, devices: str, *options: str, cache: Path | None = None, trace: Path | None = None) -> None:
        start = ["-m", "jax_backend"] if trace is None else [str(ROOT / "scripts/_traced_server.py"), str(trace)]
        command = [sys.executable, *start, "serve", "--port", "0", "--json-log", "--devices", devices, *options]
        command += [] if cache else ["--no-cache"]
        self.events: list[dict[str, Any]] = []
        self._listening = threading.Event()
        given = {**ENVIRONMENT, **({"BURN_XLA_CACHE": str(cache)} if cache else {})}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=given)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> "Server":
        self._listening.wait()
        if self._process.poll() is not None:
            raise Failed(f"the server did not start: {self.events[-20:]}")
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._listener.join()

    @property
    def url(self) -> str:
        """What clients connect to."""
        return next(event["url"] for event in self.events if event["event"] == "listening")

    @property
    def compiles(self) -> list[dict[str, Any]]:
        """The events of compiled or loaded programs."""
        return [event for event in self.events if event["event"] == "compiled"]

    def metrics(self) -> dict[str, float]:
        """The figures of `/metrics` that have no label, by name without the prefix."""
        with urllib.request.urlopen(self.url.replace("ws://", "http://") + "/metrics") as page:
            lines = page.read().decode().splitlines()
        pairs = (line.split() for line in lines if not line.startswith("#") and "{" not in line)
        return {name.removeprefix("burn_xla_"): float(value) for name, value in pairs}

    def resident_bytes(self) -> int:
        """Memory in use."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def toggle_trace(self) -> None:
        """Start jax's profiler, or end it."""
        self._process.send_signal(signal.SIGUSR1)

    def wait_for_trace(self, folder: Path, timeout_s: float = 60.0) -> None:
        """Wait until the profiler has written.

        Raises:
            Failed: it has not within `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not any(folder.rglob("*.xplane.pb")):
            if time.monotonic() > deadline:
                raise Failed(f"the profiler wrote nothing within {timeout_s:g} s")
            time.sleep(0.2)
        time.sleep(1.0)  # until it is complete

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
