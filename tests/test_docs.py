"""The documentation: its commands exist, its reference has every operation; `test_pages` runs its programs."""

import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from ir.meganeura.ops import kinds as meganeura_kinds
from ir.registry import kinds
from jax_backend.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """The generated pages by path."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return dict(import_module("_op_reference").pages())
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def commands() -> list[tuple[str, list[str]]]:
    """Every command line of the pages that calls `burn-xla`, in a block or between backticks, by page."""
    found: list[tuple[str, list[str]]] = []
    for page in PAGES:
        lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
        lines += re.findall(r"`(burn-xla [^`]+)`", page.read_text(encoding="utf-8"))
        split = [shlex.split(line.strip(), comments=True) for line in lines if "burn-xla " in line]
        found += [(page.stem, words[1:]) for words in split if words[:1] == ["burn-xla"]]
    return found


def test_every_command_and_option_that_a_page_names_exists() -> None:
    named = commands()
    assert len(named) > 15
    for page, (name, *words) in named:
        assert name in COMMANDS, page
        command: click.Command = import_module(COMMANDS[name].module).command
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            command = command.commands[words[0]]
        options = {option for parameter in command.params for option in parameter.opts}
        unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - options
        assert name == "launch" or unknown == set(), (page, name)


@pytest.mark.parametrize(("ir", "known"), [("burn", kinds()), ("meganeura", tuple(meganeura_kinds().values()))])
def test_the_reference_has_a_section_for_every_kind(
    ir: str, known: tuple[type, ...], reference: dict[str, str]
) -> None:
    text = "\n".join(page for path, page in reference.items() if path.startswith(f"operations/{ir}/"))
    assert sorted(re.findall(r"^## (\w+) \{", text, re.MULTILINE)) == sorted(kind.__name__ for kind in known)
    for line in ("Declared", "Shapes", "Lowered", "Tested"):
        assert text.count(f"\n- {line}: ") == len(known)


def test_a_kind_says_its_fields_and_where_burn_does_otherwise(reference: dict[str, str]) -> None:
    section = reference["operations/burn/numeric.md"].partition("## Clamp {")[2].partition("\n## ")[0]
    assert "| `tensor` | tensor in |  |" in section
    assert "| `min` | argument of the program |" in section
    assert "`NumericFloat.Clamp`, `NumericInt.Clamp`" in section
    assert "Clamp, min above max. Burn: Flex panics" in section


def test_options_name_their_parts(reference: dict[str, str]) -> None:
    section = reference["operations/burn/conv.md"].partition("## Conv2d {")[2].partition("\n## ")[0]
    assert "| `options` | part of the program's key | `Conv2dOptions`: stride, padding, dilation, groups |" in section
