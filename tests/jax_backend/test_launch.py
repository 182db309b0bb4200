"""Several processes of this host, as one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import sys
import numpy as np
from jax_backend.distributed import join
join(heartbeat_timeout_s=10)
import jax
import ir
from jax_backend.collective import Spmd

spmd = Spmd(jax.devices())
count, local = len(spmd.devices), jax.local_devices()
first = spmd.devices.index(local[0])
everyone = tuple(ir.DeviceId(0, n) for n in range(count))
tensor = lambda id, status: ir.tensor(id, (3,), ir.F32, status)
rows = np.stack([np.full(3, first + n + 1, np.float32) for n in range(len(local))])
state = spmd.run([ir.MulScalar(tensor(0, ir.READ_ONLY), ir.scalar(1.0), tensor(1, ir.NOT_INIT))], {0: rows})[1]
for step in range(4):
    program = [
        ir.AllReduce(tensor(1, ir.READ_ONLY), tensor(2, ir.NOT_INIT), ir.ReduceOperation.Mean, everyone),
        ir.Add(tensor(1, ir.READ_WRITE), tensor(2, ir.READ_WRITE), tensor(3, ir.NOT_INIT)),
    ]
    state = spmd.run(program, {1: state})[3]
values = {spmd.devices.index(s.device): float(s.data[0, 0]) for s in state.addressable_shards}
for position, value in sorted(values.items()):
    print("device", position, "has", value, "after", spmd.num_compiles, "compilations", flush=True)
"""

ENDLESS = TRAIN.replace("range(4)", "range(10**9)").replace(
    "    state = spmd",
    """
    if step == 3:
        import os
        print("pids", os.getpid(), flush=True)
    state = spmd""",
)

WAIT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(600)
"""


def launch(arguments: Sequence[str], code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "jax_backend", "launch", *arguments, "--", sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def pids(launcher: "subprocess.Popen[str]", count: int) -> list[int]:
    """What each of `count` processes prints behind `pids`; other lines are passed over."""
    assert launcher.stdout is not None
    found = [line.split()[2:] for line in islice((x for x in launcher.stdout if " pids " in x), count)]
    assert len(found) == count, "a process ended early"
    return [int(pid) for line in found for pid in line]


def assert_gone(numbers: Sequence[int]) -> None:
    deadline = time.monotonic() + 10

    def alive() -> list[int]:
        return [n for n in numbers if psutil.pid_exists(n) and psutil.Process(n).status() != psutil.STATUS_ZOMBIE]

    while alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive() == []


def test_two_processes_reduce_over_the_devices_of_both() -> None:
    launcher = launch(["--processes", "2", "--cpu-devices", "2"], TRAIN)
    out, err = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, out + err
    # device p starts at p + 1; the mean is 2.5 and doubles, each device adds it four times: 2.5 * 15
    want = [f"[{p // 2}] device {p} has {p + 1 + 37.5} after 2 compilations" for p in range(4)]
    assert sorted(line for line in out.splitlines() if "device" in line and "has" in line) == want


def test_a_killed_process_ends_the_rest_and_leaves_no_orphan() -> None:
    launcher = launch(["-n", "3"], WAIT)
    numbers = pids(launcher, 3)
    os.kill(numbers[2], signal.SIGKILL)
    _, err = launcher.communicate(timeout=30)
    assert launcher.returncode == 1
    assert "was killed by SIGKILL; the 2 still running were ended" in err
    assert_gone(numbers)


def test_a_process_killed_between_collectives_ends_the_others() -> None:
    launcher = launch(["-n", "2", "--cpu-devices", "1"], ENDLESS)
    numbers = pids(launcher, 2)
    os.kill(numbers[1], signal.SIGKILL)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert "was killed by SIGKILL" in err
    assert_gone(numbers)


def test_a_launcher_that_is_stopped_takes_its_processes_along() -> None:
    launcher = launch(["-n", "2"], WAIT)
    numbers = pids(launcher, 2)
    launcher.terminate()
    launcher.communicate(timeout=30)
    assert launcher.returncode == 128 + signal.SIGTERM
    assert_gone(numbers)


def test_a_launcher_that_is_killed_takes_its_processes_along() -> None:
    launcher = launch(["-n", "1"], "import os, time; print('pids', os.getpid(), flush=True); time.sleep(600)")
    numbers = pids(launcher, 1)
    launcher.kill()
    launcher.communicate(timeout=30)
    assert_gone(numbers)


def test_a_status_is_passed_on_and_a_missing_command_is_named() -> None:
    launcher = launch(["-n", "1"], "raise SystemExit(7)")
    _, err = launcher.communicate(timeout=30)
    assert launcher.returncode == 1
    assert "error: process 0 of 1 ended with status 7\n" in err
    missing = subprocess.run(
        [sys.executable, "-m", "jax_backend", "launch", "no-such-command"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert missing.returncode == 2
    assert "error: launch: no-such-command: No such file or directory" in missing.stderr
