"""`burn-xla serve` as a process: what it says, what it takes, how it ends."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from click.testing import CliRunner

from jax_backend.cache import CacheStats
from jax_backend.cli.serve import command
from jax_backend.cli.serve_log import state
from jax_backend.metrics import Counts, DeviceUse, Snapshot
from tests.remote_client import DIMS, Client, add, read, upload, values


class Served:
    """A running `burn-xla serve`, and the events that it logs."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.events: SimpleQueue[dict[str, Any]] = SimpleQueue()
        threading.Thread(target=self._follow, daemon=True).start()
        self.url: str = self.event("listening")["url"]

    def _follow(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.events.put(json.loads(line))

    def event(self, name: str) -> dict[str, Any]:
        """The next event of that name."""
        while (found := self.events.get(timeout=60))["event"] != name:
            pass
        return found

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def serving(*options: str, cache: Path) -> Generator[Served]:
    arguments = [sys.executable, "-c", "from jax_backend.cli import main; main()", "serve", "--json-log", "--port", "0"]
    environment = {**os.environ, "BURN_XLA_CACHE": str(cache)}
    with subprocess.Popen(
        [*arguments, "--devices", "cpu:2", *options], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield Served(process)
        finally:
            process.kill()


def compute(url: str, token: bytes = b"") -> None:
    with Client(url, token=token, device=1) as client:
        np.testing.assert_array_equal(values(client.ask(upload(0, 1.0), add(0, 0, 1), read(0, 1))), np.full(DIMS, 2.0))


def test_a_server_from_start_to_end(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    recordings = tmp_path / "recordings"
    cache = tmp_path / "cache"
    with serving("--token-file", str(token), "--capture", str(recordings), cache=cache) as served:
        health = json.load(urllib.request.urlopen(served.url.replace("ws:", "http:") + "/healthz"))
        assert health == {"status": "ok", "sessions": 0}
        wrong = Client(served.url, token=b"guess")
        assert wrong.hello().InitRefused == "Unauthorized"
        wrong.close_code()
        assert "wrong credential" in served.event("refused")["text"]
        compute(served.url, b"secret")
        assert served.event("opened")["device"] == "cpu:1"
        assert "compiled 1 ops" in served.event("compiled")["text"]
        assert served.event("ended")["operations"] == 1
        with Client(served.url, token=b"secret") as client:
            client.tell(upload(0, 1.0), add(0, 0, 1), read(0, 1))
            served.process.send_signal(signal.SIGTERM)
            np.testing.assert_array_equal(values(client.answer().content), np.full(DIMS, 2.0))
            assert client.close_code() == 1000
        assert served.event("stopped")["text"] == "all sessions ended"
        assert served.process.wait(60) == 0
    files = [file for file in sorted(recordings.glob("*.bxs")) if b"secret" in file.read_bytes()]
    check = [sys.executable, "-c", "from jax_backend.cli import main; main()", "run", "--check", "--no-cache"]
    done = subprocess.run([*check, str(files[0])], capture_output=True, text=True, check=True)
    assert "1 of 1 answers agree" in done.stdout

    with serving(cache=cache) as warm:
        compute(warm.url)
        assert "loaded 1 ops" in warm.event("compiled")["text"]
        assert warm.end(signal.SIGINT) == 0


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "token"
    empty.touch()

    def refuse(*options: str) -> str:
        return CliRunner().invoke(command, [*options, "--no-cache"]).output

    assert "expected a token in" in refuse("--token-file", str(empty))
    assert "is not in the range" in refuse("--max-message-bytes", str(2**30 + 1))
    assert "No such option" in refuse("--ports", "1")


def test_the_state_fits_a_terminal() -> None:
    from rich.console import Console

    counts = Counts(operations=5000, failures=2)
    devices = [DeviceUse("cuda:0", 3, 5 << 20, 2 << 30, 140 << 30), DeviceUse("cpu:0", 0, 0)]
    cache = CacheStats(hits=99, compiles=1, compile_s=2.5)
    snapshot = Snapshot(counts, cache, open_sessions=3, devices=devices)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(state(snapshot, 123_456.7))
    text = console.export_text()
    assert "3 sessions, 123,457 ops/s, 1 compiled in 2.5 s, 99.0% hits, 2 failures" in text
    assert "2.0 GiB of 140.0 GiB" in text
