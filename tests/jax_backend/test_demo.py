"""The demo learns, compiles its step once, and writes what it says."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jax_backend.cli import cli
from jax_backend.demo.digits import load
from jax_backend.demo.extra import MissingExtra


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("demo")
    save = str(folder / "step.bxs")
    found = run("demo", "digits", "--epochs", "8", "--out", str(folder), "--save", save, "--json", "--no-cache")
    return json.loads(found.output)


def test_learns(summary: dict[str, float]) -> None:
    assert summary["accuracy"] >= 0.95
    assert summary["loss"] < 0.3


def test_compiles_the_step_and_the_evaluation_once(summary: dict[str, int]) -> None:
    assert summary["steps"] == 8 * 22
    assert summary["programs"] == summary["steps"] + 8
    assert summary["compiles"] == 2
    assert summary["hits"] == summary["programs"] - 2


def test_draws_a_picture(summary: dict[str, str]) -> None:
    picture = Path(summary["picture"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300_000


def test_captured_steps_run_again(summary: dict[str, str]) -> None:
    found = json.loads(run("run", summary["capture"], "--check", "--json", "--no-cache").output)
    assert found["summary"]["compared"] == 3 + 4
    assert found["summary"]["bad"] == 0
    assert found["summary"]["compiles"] == 1


def test_names_the_command_that_installs_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtra, match=r"the demo needs sklearn.datasets: pip install 'burn-xla\[plots\]'"):
        load()
