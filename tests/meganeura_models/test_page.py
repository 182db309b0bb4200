"""The programs of docs/meganeura.md run, and print what they promise."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "meganeura.md"


def test_the_programs_of_the_page_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(programs) == 3
    names: dict[str, object] = {}
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), names)
    shape, fed, loss = capsys.readouterr().out.splitlines()
    assert shape == "(3, 1, 50)"
    token, position = fed.split()
    assert int(token.strip("[]")) in range(50)
    assert position == "[4]"
    assert float(loss) < 1.9
    assert (tmp_path / "decoder.safetensors").is_file()
