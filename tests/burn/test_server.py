"""Unmodified Burn programs train on our server to the numbers that they print on Flex, in their own process."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest

from jax_backend.cache import ProgramCache
from jax_backend.remote import Host
from tests.burn.digits import DIGITS, run_client
from tests.burn.oracle import build
from tests.remote_client import RunningServer, running

TOLERANCE = 1e-4
"""Of f32 losses: a mean over a batch is off by 1e-7 where sums run in another order, and steps of Adam carry it on.
Fused graphs leave 2e-5 on Burn's own server too (`test_digits`)."""

STEPS = {"mlp": (12, 4), "cnn": (4, 2), "transformer": (2, 1), "lstm": (2, 1)}
"""Per program: training steps, and after how many the loss is read. Few, since each read-free run is a compilation."""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(Host(jax.devices(), ProgramCache())) as server:
        yield server


@pytest.fixture(scope="module", params=["plain", "fusion"])
def client(request: pytest.FixtureRequest) -> Path:
    return build(DIGITS, features=[] if request.param == "plain" else ["fusion"])


@pytest.fixture(scope="module")
def flex() -> Path:
    return build(DIGITS)


@pytest.mark.parametrize("program", STEPS)
def test_a_burn_program_trains_as_in_process(client: Path, flex: Path, server: RunningServer, program: str) -> None:
    steps, read_every = STEPS[program]
    want = run_client(flex, program, steps=steps, read_every=read_every)
    got = run_client(client, program, url=server.url, steps=steps, read_every=read_every)
    *losses, accuracy = want
    assert [line["loss"] for line in got[:-1]] == pytest.approx([line["loss"] for line in losses], rel=TOLERANCE)
    assert len(losses) == steps // read_every
    assert (got[-1]["correct"], got[-1]["count"]) == (accuracy["correct"], 297)
    server.wait_until_empty()
    assert server.snapshot().counts.failures == 0


def test_a_second_and_a_third_program_compile_nothing_and_do_not_see_each_other(
    flex: Path, server: RunningServer
) -> None:
    def train() -> float:
        return run_client(flex, "mlp", url=server.url, steps=4, read_every=4)[0]["loss"]

    first = train()
    compiled = server.snapshot().cache.compiles
    with ThreadPoolExecutor(2) as both:
        losses = [run.result() for run in [both.submit(train), both.submit(train)]]
    assert losses == [first, first]
    assert server.snapshot().cache.compiles == compiled
