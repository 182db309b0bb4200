"""Run the Burn programs of `programs/`, and compare what two devices computed.

`run_program` needs what `build(PROGRAMS)` returns, or `build(PROGRAMS, features=["fusion"])` for a client that sends
registered graphs.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

PROGRAMS = Path(__file__).parent / "programs"


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor that a program printed; values row by row."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: list[bool | int | float]


def run_program(executable: Path, *arguments: str, timeout_s: float = 300.0) -> list[Shown]:
    """The tensors that a program prints. The arguments are its name, a device, and its options.

    Raises:
        subprocess.CalledProcessError: the program failed; `stderr` says why.
        subprocess.TimeoutExpired: it took longer than `timeout_s`, as it does when its server stops answering.
    """
    done = subprocess.run([str(executable), *arguments], capture_output=True, check=True, timeout=timeout_s)
    return [msgspec.json.decode(line, type=Shown) for line in done.stdout.splitlines()]


def assert_same(got: Sequence[Shown], expected: Sequence[Shown], *, rtol: float, atol: float) -> None:
    """Ints and bools are equal; floats differ by at most `atol + rtol * |expected|`."""
    assert [(shown.name, shown.dtype, shown.shape) for shown in got] == [
        (shown.name, shown.dtype, shown.shape) for shown in expected
    ]
    for ours, theirs in zip(got, expected, strict=True):
        exact = not theirs.dtype.startswith(("F", "BF"))
        np.testing.assert_allclose(
            ours.values, theirs.values, rtol=0 if exact else rtol, atol=0 if exact else atol, err_msg=ours.name
        )
