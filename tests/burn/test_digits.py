"""Burn's programs give the same numbers over Burn's own server as in process: they are fit to judge other servers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.burn.digits import DIGITS, PROGRAMS, run_client, stock_server
from tests.burn.oracle import build

# Fused graphs round in another order; twelve steps of Adam carried 2e-6 to a loss, four of AdamW 2e-5.
FUSION_TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def plain() -> Path:
    return build(DIGITS)


@pytest.fixture(scope="module")
def fusion() -> Path:
    return build(DIGITS, features=["fusion"])


@pytest.fixture(scope="module")
def url(plain: Path) -> Iterator[str]:
    with stock_server(plain) as url:
        yield url


def numbers(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines without the time that they took."""
    return [{name: value for name, value in line.items() if name != "elapsed_s"} for line in lines]


@pytest.mark.parametrize("program", PROGRAMS)
def test_plain_client_agrees_to_the_last_bit(plain: Path, url: str, program: str) -> None:
    assert numbers(run_client(plain, program, url=url)) == numbers(run_client(plain, program))


@pytest.mark.parametrize("program", PROGRAMS)
def test_fusion_client_agrees(plain: Path, fusion: Path, url: str, program: str) -> None:
    expected = numbers(run_client(plain, program))
    *losses, accuracy = numbers(run_client(fusion, program, url=url))
    assert [line["loss"] for line in losses] == pytest.approx(
        [line["loss"] for line in expected[:-1]], rel=FUSION_TOLERANCE
    )
    assert accuracy == expected[-1]


def test_training_learns(plain: Path) -> None:
    first, *_, last, accuracy = run_client(plain, "mlp", steps=100, read_every=10)
    assert last["loss"] < 0.2 < 1.0 < first["loss"]
    assert accuracy["accuracy"] > 0.85


def test_options_set_how_often_the_loss_is_read(plain: Path) -> None:
    lines = run_client(plain, "lstm", steps=3, read_every=1)
    assert [line["step"] for line in lines] == [1, 2, 3, 3]
    assert [name for name in lines[-1]] == ["program", "step", "accuracy", "correct", "count", "elapsed_s"]
