"""The notebooks run from the first cell to the last, draw, and are committed without what they print."""

import base64
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LIMIT_S = 120

pytestmark = pytest.mark.xdist_group("notebooks")


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(notebook)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) >= 3
    assert [cell["outputs"] for cell in code if cell["outputs"]] == []
    assert {cell["execution_count"] for cell in code} == {None}
    assert notebook["metadata"].keys() <= {"kernelspec", "language_info"}
    assert notebook["cells"][0]["source"][0].startswith(f"# {path.stem[:2]} · ")


@pytest.mark.filterwarnings("ignore:Proactor event loop")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_draws(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = read(path)
    began = time.monotonic()
    NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert time.monotonic() - began < LIMIT_S
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pictures = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= 2
    assert all(width >= 300 for width, _ in map(size, pictures))
    complaints = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert complaints == []


def size(png: str) -> tuple[int, int]:
    """Width and height in pixels of a picture in base64."""
    width, height = struct.unpack(">II", base64.b64decode(png)[16:24])
    return width, height


def test_the_numbers_are_in_order() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{n:02}" for n in range(1, len(NOTEBOOKS) + 1)]
    assert len(NOTEBOOKS) == 7
