"""The pages do by copy and paste what they say."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from jax_backend.cli import cli

DOCS = Path(__file__).resolve().parents[1] / "docs"
LIVE = ("serve", "step.bxs")
"""Commands that need a server or a session of one's own: their options are checked with those of all pages."""


def blocks(page: str) -> list[tuple[str, str]]:
    """The blocks of a page in order, each with its language."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```(python|sh|text)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(block: str) -> str:
    """What the commands of a block print."""
    printed = ""
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "burn-xla" and not set(words) & set(LIVE):
            result = CliRunner().invoke(cli, words[1:])
            assert result.exit_code in (0, 1), result.output
            printed += result.stdout
    return printed


def rounded(text: str) -> str:
    """`text` with its numbers to three digits: the others belong to the machine."""
    return re.sub(r"-?\d+\.\d+(?:e[+-]?\d+)?", lambda m: f"{float(m[0]):.3g}", text)


@pytest.mark.parametrize(
    ("page", "num_outputs"),
    [("finding_faults", 4), ("programs", 0), ("meganeura", 0), ("start/python", 0), ("start/meganeura", 0)],
)
def test_a_page_runs_from_top_to_bottom(
    page: str, num_outputs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    printed, compared = "", 0
    for language, block in blocks(page):
        if language == "python":
            exec(compile(block, page, "exec"), scope)
        elif language == "sh":
            printed = run(block)
        else:
            shown, got = rounded(block), rounded(printed)
            assert [line for line in shown.splitlines() if line not in got] == [], printed
            compared += 1
    assert compared == num_outputs


def test_the_page_about_faults_names_every_side_and_every_search() -> None:
    text = (DOCS / "finding_faults.md").read_text(encoding="utf-8")
    for word in ("--nan", "f64", "recorded", "ws://", "gpu+compiled", "burn-xla shrink", "burn-xla profile"):
        assert word in text
