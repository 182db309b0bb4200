"""Ask Burn itself: builds the cargo projects beside this file and talks to `oracle/`.

    with Oracle(build(ORACLE)) as oracle:
        answers = oracle.run([case, ...])

A case and an answer are described in `oracle/src/main.rs`. This module adds one kind of answer: a case in which the
process died or fell silent has `{"abort": why}`, and the next case meets a fresh process.
"""

import contextlib
import fcntl
import os
import resource
import select
import struct
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from tests.burn.cache import cache_dir

HERE = Path(__file__).parent
ORACLE = HERE / "oracle"

Case: TypeAlias = bytes | Sequence[Any]
"""`[seed, tensors, aliases, ops, reads]`, or its msgpack bytes."""
Answer: TypeAlias = dict[str, Any]


class OracleError(RuntimeError):
    """A cargo project did not build."""


def build(
    project_dir: Path,
    *,
    features: Sequence[str] = (),
    release: bool = False,
    patches: Mapping[str, Path] = MappingProxyType({}),
) -> Path:
    """Build a cargo project (again) and return its executable.

    All projects share what cargo makes, in `cargo/shared` of `cache_dir()`, since they use the same crates: the first
    build takes minutes, one without changes well under a second. `release` is for measuring; a debug build computes
    the same numbers. `patches` are folders to take crates from, by name, in place of the published ones.

    Raises:
        OracleError: cargo is missing or fails.
    """
    manifest = project_dir / "Cargo.toml"
    package = tomllib.loads(manifest.read_text())["package"]["name"]
    target = cache_dir() / "cargo" / "shared"
    profile = "release" if release else "debug"
    executable = target / "bin" / profile / "-".join([package, *features, *patches]).replace("/", "-")
    executable.parent.mkdir(parents=True, exist_ok=True)
    command = ["cargo", "build", "--quiet", "--manifest-path", str(manifest), "--features", ",".join(features)]
    command += ["--release"] if release else []
    for name, folder in patches.items():
        command += ["--config", f"patch.crates-io.{name}.path='{folder}'"]
    # Whatever its features, cargo gives a program the same name: nobody else builds until it is out of the way.
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cargo(command, target)
        built = target / profile / package
        if not executable.exists() or not executable.samefile(built):
            link = executable.with_name(f"{executable.name}.new")
            link.unlink(missing_ok=True)
            link.hardlink_to(built)
            link.replace(executable)
    return executable


def cargo(command: Sequence[str], target: Path | None = None) -> str:
    """Run a command of cargo, which builds in `target`; returns what it prints.

    Raises:
        OracleError: cargo is missing or fails.
    """
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)} if target else None
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise OracleError("cargo is not installed: see https://rustup.rs, Rust 1.95 or newer") from error
    if done.returncode:
        raise OracleError(f"`{' '.join(command)}` failed:\n{done.stderr[-4000:]}")
    return done.stdout


class Oracle:
    """A process that runs cases on Burn's interpreter; started on first use and again after an abort.

    Args:
        executable: what `build(ORACLE)` returns.
        memory_bytes: address space of the process; a case that wants more aborts.
        timeout_s: how long one case may take.
        environment: variables that the process gets beside those of this one.
    """

    def __init__(
        self,
        executable: Path,
        *,
        memory_bytes: int = 4 << 30,
        timeout_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._executable = executable
        self._environment = environment or {}
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if there is one."""
        self._stop()

    def run(self, cases: Iterable[Case]) -> list[Answer]:
        """One answer per case, in order."""
        frames = [_frame(case) for case in cases]
        answers: list[Answer] = []
        while len(answers) < len(frames):
            process = self._start()
            # The oracle answers while it still reads: whoever writes everything first waits for ever.
            writer = threading.Thread(target=_feed, args=(process, frames[len(answers) :]), daemon=True)
            writer.start()
            while len(answers) < len(frames):
                answer = self._receive(process)
                answers.append(answer)
                if "abort" in answer:
                    break
            writer.join()
        return answers

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._received.clear()
            self._process = subprocess.Popen(
                [str(self._executable)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **self._environment},
            )
            limits = (self._memory_bytes, self._memory_bytes)
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, limits)
        return self._process

    def _stop(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return process.wait()

    def _receive(self, process: subprocess.Popen[bytes]) -> Answer:
        deadline = time.monotonic() + self._timeout_s
        try:
            (length,) = struct.unpack("<I", self._take(process, 4, deadline))
            return msgspec.msgpack.decode(self._take(process, length, deadline), type=Answer)
        except TimeoutError:
            self._stop()
            return {"abort": f"no answer within {self._timeout_s:g} s"}
        except EOFError:
            process.wait()
            return {"abort": f"the process ended with status {self._stop()}"}

    def _take(self, process: subprocess.Popen[bytes], count: int, deadline: float) -> bytes:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        while len(self._received) < count:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            chunk = os.read(descriptor, 1 << 20)
            if not chunk:
                raise EOFError
            self._received += chunk
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


def _frame(case: Case) -> bytes:
    body = case if isinstance(case, bytes) else msgspec.msgpack.encode(case)
    return struct.pack("<I", len(body)) + body


def _feed(process: subprocess.Popen[bytes], frames: Sequence[bytes]) -> None:
    assert process.stdin is not None
    try:
        for frame in frames:
            process.stdin.write(frame)
        process.stdin.flush()
    except (BrokenPipeError, ValueError):
        pass  # The process is gone; the reader finds out and says so.
