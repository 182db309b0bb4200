"""`burn-xla launch`: one command in several processes of this host, which find each other."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

import click

from ir.errors import IrError

GRACE_S: Final = 5.0
"""How long a process may take to end after SIGTERM."""

_POLL_S: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1


class LaunchFailure(IrError):
    """A process ended before its work was done."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--processes", "-n", default=2, show_default=True, type=click.IntRange(min=1), help="How many.")
@click.option("--cpu-devices", type=click.IntRange(min=1), help="Use the CPU only, as this many devices per process.")
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="Where they find each other; default: a free one."
)
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED)
def command(processes: int, cpu_devices: int | None, port: int, command_line: tuple[str, ...]) -> None:
    """Run COMMAND_LINE in several processes that `jax_backend.distributed.join` connects.

    Each line that a process prints begins with its number. When one fails, the others are ended.
    """
    environment = dict(os.environ, JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{port or free_port()}")
    environment["BURN_XLA_NUM_PROCESSES"] = str(processes)
    if cpu_devices is not None:
        environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(cpu_devices)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started: list[subprocess.Popen[str]] = []
    try:
        numbers = map(str, range(processes))
        started.extend(start(command_line, environment | {"BURN_XLA_PROCESS_ID": number}) for number in numbers)
        echoes = [threading.Thread(target=echo, args=(n, p), daemon=True) for n, p in enumerate(started)]
        for thread in echoes:
            thread.start()
        failure = watch(started)
    finally:
        end(started)
    for thread in echoes:
        thread.join(GRACE_S)
    if failure:
        click.echo(f"error: {failure}", err=True)
        sys.exit(1)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(command_line: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start one process, at the head of a group of its own, which ends with this one.

    Raises:
        LaunchFailure: there is no such command.
    """

    def end_with_parent() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    try:
        return subprocess.Popen(
            command_line,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
    except OSError as reason:
        raise LaunchFailure(f"launch: {command_line[0]}: {reason.strerror}") from reason


def echo(number: int, process: "subprocess.Popen[str]") -> None:
    """Print what a process prints, each line with its number."""
    assert process.stdout is not None
    for line in process.stdout:
        click.echo(f"[{number}] {line}", nl=False)


def watch(processes: "Sequence[subprocess.Popen[str]]") -> str:
    """Wait until all are done, or one has failed. Returns how it failed, or nothing."""
    while True:
        states = [process.poll() for process in processes]
        failed = [f"process {n} of {len(states)} {ending(state)}" for n, state in enumerate(states) if state]
        if failed:
            running = states.count(None)
            return "; ".join([*failed, f"the {running} still running were ended"] if running else failed)
        if None not in states:
            return ""
        time.sleep(_POLL_S)


def ending(status: int) -> str:
    """How a process ended.

    >>> ending(3), ending(-9)
    ('ended with status 3', 'was killed by SIGKILL')
    """
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def end(processes: "Sequence[subprocess.Popen[str]]") -> None:
    """End every process and whatever it started: politely, then for good."""
    deadline = time.monotonic() + GRACE_S
    running = [process for process in processes if process.poll() is None]
    for process in running:
        _signal(process, signal.SIGTERM)
    for process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue
    for process in processes:
        _signal(process, signal.SIGKILL)  # of one that has ended, what it left behind
        process.wait()


def _signal(process: "subprocess.Popen[str]", number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return
