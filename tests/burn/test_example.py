"""`examples/burn_digits` learns on `burn-xla serve`, as its README says, and as on Burn's own Flex backend."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.burn.digits import DIGITS
from tests.burn.oracle import build

pytestmark = pytest.mark.xdist_group("burn-example")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "burn_digits"

# What the programs of tests/burn ask of Burn beyond what the example does: with it, they share what is compiled.
SHARED = "burn/remote-server"


@contextlib.contextmanager
def serve() -> Generator[str, None, None]:
    """`burn-xla serve` in a process of its own, as the URL that clients take.

    Raises:
        RuntimeError: it does not listen, or does not end in order; the message holds its log.
    """
    command = [sys.executable, "-m", "jax_backend", "serve", "--port", "0", "--devices", "cpu:1"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, "--no-cache", "--json-log"], cwd=ROOT, stdout=log, stderr=log)
        try:
            yield _url(log.fileno(), process)
        finally:
            process.terminate()
            ended = process.wait(60.0)
        if ended:
            raise RuntimeError(f"the server ended with status {ended}:\n{_text(log.fileno())}")


def _url(log: int, process: subprocess.Popen[bytes], timeout_s: float = 60.0) -> str:
    """What the server says that it listens on."""
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        for line in _text(log).splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n"):
                event = msgspec.json.decode(line, type=dict)
                if event["event"] == "listening":
                    return event["url"]
        time.sleep(0.05)
    raise RuntimeError(f"the server does not listen:\n{_text(log)}")


def _text(log: int) -> str:
    return os.pread(log, 1 << 20, 0).decode()


@pytest.fixture(scope="module", params=["plain", "fusion"])
def example(request: pytest.FixtureRequest) -> Path:
    return build(EXAMPLE, features=[SHARED] if request.param == "plain" else [SHARED, request.param])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve() as url:
        yield url


def learn(example: Path, folder: Path, *arguments: str) -> str:
    command = [str(example), "--save", str(folder / "digits.bpk"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300.0).stdout


def loss_curve(example: Path, folder: Path, *device: str) -> np.ndarray:
    curve = folder / "curve.txt"
    learn(example, folder, *device, "--no-dropout", "--seed", "7", "--epochs", "1", "--curve", str(curve))
    return np.loadtxt(curve)


def percents(output: str) -> list[float]:
    """The accuracy after each epoch, and that of the model which was loaded again."""
    return [float(percent) for percent in re.findall(r"([\d.]+) %", output)]


def test_it_learns_to_read(example: Path, url: str, tmp_path: Path) -> None:
    *_, trained, loaded = percents(learn(example, tmp_path, "--url", url))
    assert loaded == trained >= 97.0


@pytest.fixture(scope="module")
def flex_curve(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return loss_curve(build(EXAMPLE, features=[SHARED]), tmp_path_factory.mktemp("flex"), "--device", "flex")


def test_the_loss_curve_is_that_of_flex(example: Path, url: str, tmp_path: Path, flex_curve: np.ndarray) -> None:
    ours, flex = loss_curve(example, tmp_path, "--url", url), flex_curve
    assert len(ours) == 29
    # Sums run in another order, and steps of Adam carry that on: 1e-5 at the end.
    np.testing.assert_allclose(ours, flex, rtol=1e-4)
    assert flex[-5:].mean() < 0.5 < 2.0 < flex[0]


def test_the_digits_are_those_of_the_other_programs() -> None:
    own, others = (path / "data" / "digits.bin" for path in (EXAMPLE, DIGITS))
    assert own.read_bytes() == others.read_bytes()
