"""Builds the sdist and, from it, the wheel; installs that into a fresh environment; does there what the pages show.

Run it as `python scripts/check_package.py`. What it made stays in `build/package`.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "package"
PACKAGES = ("ir", "jax_backend")
PAGES = (Path("README.md"), Path("docs/start/python.md"), Path("docs/start/meganeura.md"))
"""What a reader follows first."""


def main() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(PLACE), str(ROOT))
    (sdist,), (wheel,) = PLACE.glob("*.tar.gz"), PLACE.glob("*.whl")
    check_contents(sdist, wheel)
    bin = PLACE / "env" / "bin"
    run(sys.executable, "-m", "venv", str(bin.parent))
    run(str(bin / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[plots]")
    for page in PAGES:
        follow(page, (ROOT / page).read_text(encoding="utf-8"), bin, PLACE / page.stem)
    print(f"{sdist.name} ({sdist.stat().st_size:,} bytes) and {wheel.name} ({wheel.stat().st_size:,} bytes) work")


def check_contents(sdist: Path, wheel: Path) -> None:
    """Check that both hold every file of the packages, and the wheel nothing else.

    Raises:
        SystemExit: a file is missing or too much.
    """
    wanted = {p.relative_to(ROOT).as_posix() for name in PACKAGES for p in (ROOT / name).rglob("*") if is_source(p)}
    if not {f"{name}/py.typed" for name in PACKAGES} <= wanted:
        raise SystemExit("error: a package has no py.typed")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    if different := in_wheel ^ wanted:
        raise SystemExit(f"error: {wheel.name} and the checkout differ in {sorted(different)}")
    if missing := (wanted | {"LICENSE", "README.md", "pyproject.toml"}) - in_sdist:
        raise SystemExit(f"error: {sdist.name} lacks {sorted(missing)}")


def is_source(path: Path) -> bool:
    """Whether a file below a package belongs to it."""
    return path.is_file() and "__pycache__" not in path.parts


def follow(page: Path, text: str, bin: Path, place: Path) -> None:
    """Run the commands and programs of a page in their order, as a reader would, in an empty folder.

    The programs of a page continue each other. Only commands of ours are run, and `serve` is not: it does not end. A
    block that installs something more is left out.

    Raises:
        SystemExit: one fails, or the page has no program.
    """
    place.mkdir()
    program = ""
    waiting = False
    for language, block in blocks(text):
        if language == "python":
            program, waiting = f"{program}{block}\n", True
            continue
        if "pip install" in block:
            continue
        if waiting:
            run(str(bin / "python"), "-c", program, cwd=place)
            waiting = False
        for name, *arguments in (shlex.split(line, comments=True) for line in block.splitlines()):
            if name == "burn-xla" and arguments[0] != "serve":
                run(str(bin / name), *arguments, cwd=place)
    if waiting:
        run(str(bin / "python"), "-c", program, cwd=place)
    if not program:
        raise SystemExit(f"error: {page} has no Python program")


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of Python and of a shell."""
    return re.findall(r"^```(python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(*command: str, cwd: Path = ROOT) -> None:
    """Run a command without the checkout on its path.

    Raises:
        SystemExit: it fails.
    """
    print("$", shlex.join(_short(command)), flush=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["BURN_XLA_CACHE"] = str(PLACE / "cache")
    if status := subprocess.run(command, cwd=cwd, env=environment, check=False).returncode:
        raise SystemExit(f"error: exit status {status}: {shlex.join(_short(command))}")


def _short(command: Sequence[str]) -> list[str]:
    known = {sys.executable: "python", str(ROOT): "."}
    return [known.get(part, part if len(part) < 200 else f"{part[:200]}..") for part in command]


if __name__ == "__main__":
    main()
