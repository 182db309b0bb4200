"""What holds for the project as a whole: sizes of modules, what is in the repository, what the README promises."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ir
from ir.registry import forms, kinds
from jax_backend.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]

MAX_LINES = 500
LONGER = {
    "ir/__init__.py": "exports each of 211 kinds by name, twice: as an import and in __all__",
}
"""Modules that may be longer, and why."""

IMPORT_BUDGET_S = 0.06


def tracked() -> list[Path]:
    """Every file of the repository; of an archive without git, every file that .gitignore does not name."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    patterns = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    ignored = {".git", *(p.strip("/") for p in patterns)}
    return [p for p in ROOT.rglob("*") if p.is_file() and not any(_matches(part, ignored) for part in _parts(p))]


def _parts(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).parts


def _matches(name: str, patterns: set[str]) -> bool:
    return any(Path(name).match(pattern) for pattern in patterns)


def texts() -> Iterator[tuple[str, str]]:
    """Path and content of every file that is text."""
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            yield path.relative_to(ROOT).as_posix(), data.decode("utf-8", "replace")


def test_modules_stay_short() -> None:
    lengths = {name: text.count("\n") for name, text in texts() if name.endswith(".py")}
    assert {name: n for name, n in lengths.items() if n > MAX_LINES and name not in LONGER} == {}
    assert {name for name in LONGER if lengths[name] <= MAX_LINES} == set(), "these need no exception any more"


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    homes = re.compile("(?<![\\w.])/(?:" + "|".join(("home", "root", "Users", "work", "tmp/w")) + ")/[\\w.]")
    assert [(name, m[0]) for name, text in texts() if (m := homes.search(text))] == []


def test_packages_come_by_name_alone() -> None:
    hosts = re.compile("|".join(("pypi" + r"\.org", "python" + r"hosted\.org", "--(extra-)?index" + "-url")))
    assert [name for name, text in texts() if hosts.search(text)] == []
    assert [p.name for p in tracked() if p.suffix == ".lock" or p.name in ("package-lock.json", "Pipfile.lock")] == []


def test_ir_exports_every_kind() -> None:
    missing = [kind.__name__ for kind in kinds() if getattr(ir, kind.__name__, None) is not kind]
    assert missing == []
    assert {kind.__name__ for kind in kinds()} <= set(ir.__all__)
    assert len(forms()) == 330


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_ir_loads_neither_jax_nor_numpy() -> None:
    loaded = run_python("import sys, ir; print(*(n for n in ('jax', 'jaxlib', 'numpy') if n in sys.modules))")
    assert loaded.split() == []


def test_importing_ir_is_quick() -> None:
    code = "import time; t = time.process_time(); import ir; print(time.process_time() - t)"
    best_s = min(float(run_python(code)) for _ in range(5))
    # Processor time, since others may be busy; slower processors get three times the budget.
    assert best_s <= 3 * IMPORT_BUDGET_S


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", readme(), re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_readme_exist() -> None:
    named = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    assert len(named) >= 6
    for program, *arguments in named:
        if program == "burn-xla":
            assert arguments[0] in COMMANDS
        elif program == "pip":
            (extra,) = re.findall(r"^\.\[(\w+)\]$", arguments[1])
            assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        elif program == "cargo":
            assert (ROOT / arguments[arguments.index("--manifest-path") + 1]).is_file()
        else:
            assert os.access(ROOT / program, os.X_OK), program


def test_the_programs_of_the_readme_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    printed: list[str] = []
    for program in blocks("python"):
        exec(compile(program, "README.md", "exec"), scope)
        printed.append(capsys.readouterr().out)
    tensors, function = printed
    assert [float(n) for n in re.findall(r"[\d.]+", tensors)] == [0.5] * 4
    assert "def program(x, w, op1_rhs=np.float32(0.5)):" in function
    assert (tmp_path / "loss.jax").stat().st_size > 0


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/differences.md", "docs/rejected.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in t]
    assert [t for t in targets if not ((ROOT / page).parent / t).exists()] == []


def test_pictures_are_small() -> None:
    sizes = {p.name: p.stat().st_size for p in (ROOT / "docs/images").iterdir()}
    assert {"digits.png", "inspect.png"} <= sizes.keys()
    assert {name: size for name, size in sizes.items() if size > 300_000} == {}
