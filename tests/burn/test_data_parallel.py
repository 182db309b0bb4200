"""Burn's own all-reduce: an unmodified client whose devices share each batch, through one session per device."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from jax_backend.cache import ProgramCache
from jax_backend.remote import Host
from tests.burn.oracle import build
from tests.remote_client import RunningServer, running

PROJECT = Path(__file__).parent / "data_parallel"


def run_client(executable: Path, *options: str) -> list[list[float]]:
    done = subprocess.run([str(executable), *options], capture_output=True, text=True, check=True, timeout=100)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module", params=[False, True], ids=["", "launch_ahead"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running(Host(jax.devices(), ProgramCache(), collective_s=60.0, launch_ahead=request.param)) as server:
        yield server


@pytest.mark.parametrize("features", [[], ["fusion"]], ids=["plain", "fusion"])
def test_devices_that_share_each_batch_learn_what_one_does(server: RunningServer, features: list[str]) -> None:
    client = build(PROJECT, features=features)
    losses, weights = run_client(build(PROJECT), "--flex")
    assert losses[-1] < losses[0] / 4
    for count in (2, 4):
        lines = run_client(client, "--url", server.url, "--devices", str(count))
        assert lines == lines[:2] * count  # equal bits on each device
        np.testing.assert_allclose(lines[0], losses, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(lines[1], weights, rtol=1e-5, atol=1e-6)
    server.wait_until_empty()
    assert server.snapshot().counts.failures == 0
