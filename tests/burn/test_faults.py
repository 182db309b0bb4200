"""`burn-xla diff` beside Burn's own server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ir
from jax_backend import Recording, lowering
from tests.burn.digits import DIGITS, stock_server
from tests.burn.oracle import build
from tests.jax_backend.test_cli import invoke
from tests.sessions import FIXTURES


@pytest.fixture(scope="module")
def burn() -> Iterator[str]:
    """The URL of Burn's own remote server, on Flex."""
    with stock_server(build(DIGITS)) as url:
        yield url


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first training step of the classifier: forward, backward, Adam."""
    recording = Recording.load(FIXTURES / "mlp.bxs")
    head = Recording()
    head.data = recording.data
    for op in recording.ops[:110]:
        head.append(op)
    path = tmp_path_factory.mktemp("burn") / "step.bxs"
    head.save(path)
    return path


def test_a_session_of_all_sorts_is_the_same_on_burns_server(burn: str) -> None:
    result = invoke("diff", FIXTURES / "tour.bxs", "--right", burn)
    assert result.exit_code == 0, result.output
    assert "208 operations, nothing found" in result.output


def test_a_lowering_that_went_wrong_is_found(
    burn: str, step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Adam divides small gradients by their own size, which makes 1e-7 of a gradient 4e-4 of its update.
    near = ("--right", burn, "--rtol", "1e-3", "--atol", "1e-4", "--out", tmp_path / "fault.bxs")
    assert invoke("diff", step, *near).exit_code == 0
    right = lowering._lowerings[ir.GeluBackward]

    def wrong(op: ir.GeluBackward, x: Any, grad: Any) -> Any:
        return right(op, grad, x)

    monkeypatch.setitem(lowering._lowerings, ir.GeluBackward, wrong)
    result = invoke("diff", step, *near)
    assert result.exit_code == 1, result.output
    assert "GeluBackward(" in result.output.splitlines()[2]
    assert [op.kind for op in Recording.load(tmp_path / "fault.bxs").ops] == ["GeluBackward"]
    monkeypatch.undo()
    assert invoke("run", "--check", tmp_path / "fault.bxs").exit_code == 0
