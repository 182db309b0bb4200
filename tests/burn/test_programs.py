"""Unmodified Burn programs compute on `burn-xla serve` what Burn's own Flex backend computes in their process."""

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jax_backend.cache import ProgramCache
from jax_backend.remote import Host
from tests.burn import minilm
from tests.burn.digits import DIGITS, run_client
from tests.burn.oracle import build
from tests.burn.programs import PROGRAMS, Shown, assert_same, run_program
from tests.remote_client import RunningServer, running

pytestmark = pytest.mark.xdist_group("burn-programs")

FEATURES: dict[str, list[str]] = {"plain": [], "fusion": ["fusion"]}

# Sums are taken in another order. A fusion client moreover takes the gradient of GELU by its tanh approximation, up to
# 8.7e-4 off: 2e-4 in an image after six steps.
F32 = {"plain": {"rtol": 1e-5, "atol": 1e-6}, "fusion": {"rtol": 1e-3, "atol": 1e-3}}
# Flex rounds to two bytes after each operation, XLA only where a value leaves a fused loop: each rounding is 2^-11 or
# 2^-8 of the value; the numbers here are at most 3.
TWO_BYTES = {"f16": {"rtol": 2e-3, "atol": 2e-3}, "bf16": {"rtol": 0.016, "atol": 0.016}}


@dataclass(frozen=True)
class Client:
    """How Burn was built, and the programs of a project."""

    kind: str
    executable: Path


@pytest.fixture(scope="module", params=FEATURES)
def programs(request: pytest.FixtureRequest) -> Client:
    return Client(request.param, build(PROGRAMS, features=FEATURES[request.param]))


@pytest.fixture(scope="module", params=FEATURES)
def digits(request: pytest.FixtureRequest) -> Client:
    return Client(request.param, build(DIGITS, features=FEATURES[request.param]))


def two_devices() -> AbstractContextManager[RunningServer]:
    return running(Host(jax.devices()[:2], ProgramCache()))


@pytest.fixture(scope="module")
def module_server() -> Iterator[RunningServer]:
    with two_devices() as server:
        yield server


@pytest.fixture
def url(module_server: RunningServer) -> Iterator[str]:
    yield module_server.url
    module_server.wait_until_empty()
    assert module_server.snapshot().counts.failures == 0


@functools.cache
def on_flex(*arguments: str) -> list[Shown]:
    return run_program(build(PROGRAMS), *arguments, "--device", "flex")


@functools.cache
def digits_on_flex(name: str, steps: int) -> list[dict[str, Any]]:
    return run_client(build(DIGITS), name, steps=steps)


@pytest.mark.parametrize("name", ["unet", "ints", "threads", "devices"])
def test_programs(programs: Client, url: str, name: str) -> None:
    expected = on_flex(name)
    assert_same(run_program(programs.executable, name, "--url", url), expected, **F32[programs.kind])


# One client each: fusion changes the order of operations, not their types.
@pytest.mark.parametrize(("programs", "dtype"), [("plain", "f16"), ("fusion", "bf16")], indirect=["programs"])
def test_types_of_two_bytes(programs: Client, url: str, dtype: str) -> None:
    expected = on_flex("classify", "--dtype", dtype)
    got = run_program(programs.executable, "classify", "--url", url, "--dtype", dtype)
    assert {shown.dtype for shown in got} == {dtype.upper()}
    assert_same(got, expected, **TWO_BYTES[dtype])


def test_tensors_move_between_two_servers(programs: Client, url: str) -> None:
    expected = on_flex("devices")
    with two_devices() as other:
        got = run_program(programs.executable, "devices", "--url", url, "--url", other.url)
        assert other.snapshot().counts.operations > 0
    assert_same(got, expected, **F32[programs.kind])


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ids of each sentence, one sentence a line."""
    file = tmp_path_factory.mktemp("minilm") / "ids.txt"
    lines = [" ".join(map(str, ids)) for ids in minilm.reference().ids]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_pretrained_sentence_encoder(programs: Client, url: str, sentences: Path) -> None:
    arguments = ("minilm", "--weights", str(minilm.weights()), "--ids", str(sentences))
    got = run_program(programs.executable, *arguments, "--url", url)
    # Each embedding has length 1; torch and Flex differ by 2.7e-7.
    assert_same(got, on_flex(*arguments), rtol=0, atol=1e-6)
    np.testing.assert_allclose(rows(got[0]), minilm.reference().embeddings, rtol=0, atol=1e-6)
    cosines = rows(got[1])
    assert cosines[0, 1] > 0.5 > cosines[0, 2], "the second sentence says what the first says"


def rows(shown: Shown) -> np.ndarray:
    return np.reshape(np.asarray(shown.values, np.float64), shown.shape)


def test_a_transformer_trains_for_fifty_steps(digits: Client, url: str) -> None:
    *losses, accuracy = run_client(digits.executable, "transformer", url=url, steps=50)
    *expected_losses, expected_accuracy = digits_on_flex("transformer", 50)
    assert [line["step"] for line in losses] == list(range(2, 51, 2))
    expected = [line["loss"] for line in expected_losses]
    np.testing.assert_allclose([line["loss"] for line in losses], expected, **F32["fusion"])
    assert accuracy["correct"] == pytest.approx(expected_accuracy["correct"], abs=1)
