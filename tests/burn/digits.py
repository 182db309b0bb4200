"""Run the Burn programs of `digits/`: as clients of a server, or in process on Burn's own Flex backend.

`run_client` needs what `build(DIGITS)` returns, or `build(DIGITS, features=["fusion"])` for a client that sends
registered graphs.
"""

import contextlib
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec

DIGITS = Path(__file__).parent / "digits"
PROGRAMS = ("mlp", "cnn", "transformer", "lstm")


def run_client(
    executable: Path,
    program: str,
    *,
    url: str | None = None,
    steps: int | None = None,
    read_every: int | None = None,
    timeout_s: float = 300.0,
) -> list[dict[str, Any]]:
    """The lines that one of `PROGRAMS` prints: each loss it reads, then its accuracy.

    Without `url` it runs on Flex in its own process; `elapsed_s` counts from the first operation.

    Raises:
        subprocess.CalledProcessError: the client failed; `stderr` says why.
        subprocess.TimeoutExpired: it took longer than `timeout_s`, as it does when its server stops answering.
    """
    command = [str(executable), "client", program, "--json"]
    command += ["--url", url] if url is not None else ["--device", "flex"]
    command += ["--steps", str(steps)] if steps is not None else []
    command += ["--read-every", str(read_every)] if read_every is not None else []
    done = subprocess.run(command, capture_output=True, check=True, timeout=timeout_s)
    return [msgspec.json.decode(line) for line in done.stdout.splitlines()]


@contextlib.contextmanager
def stock_server(executable: Path) -> Generator[str, None, None]:
    """Burn's own remote server with two Flex devices, as the URL that clients take."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [str(executable), "serve", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"ws://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
