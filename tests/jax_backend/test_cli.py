"""The command line: what it prints, how it ends, and how fast it starts."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jax_backend import disk_cache
from jax_backend.cli import COMMANDS, cli
from tests.sessions import FIXTURES, as_lines, doubled_sum

START_S = 1.5
"""Bound of a start-up on a busy machine; an idle one needs 0.15 s to 0.3 s, and jax alone would add 0.5 s."""


def invoke(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "jax_backend", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session whose recorded answer is right."""
    file = tmp_path / "right.jsonl"
    file.write_bytes(as_lines(doubled_sum([1, -2, 0.5], [3, -6, 1.5])))
    return file


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A session whose recorded answer differs in its last element."""
    file = tmp_path / "wrong.jsonl"
    file.write_bytes(as_lines(doubled_sum([1, -2, 0.5], [3, -6, 1.25])))
    return file


def test_help_names_every_command() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for name, entry in COMMANDS.items():
        assert name in result.output
        assert entry.summary in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads(name: str) -> None:
    assert cli.get_command(None, name) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [["--help"], ["inspect", str(FIXTURES / "tour.bxs"), "--json"]])
def test_starts_fast_and_without_jax(arguments: list[str]) -> None:
    script = (
        "import sys\nsys.argv = ['burn-xla', *sys.argv[1:]]\nfrom jax_backend.cli import main\n"
        "try:\n    main()\nfinally:\n    loaded = [m for m in ('jax', 'numpy') if m in sys.modules]\n"
        "    print('loaded:', loaded, file=sys.stderr)"
    )
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
        best = min(best, time.perf_counter() - began)
        assert "loaded: []" in done.stderr
    assert best < START_S


def test_run_prints_reads_and_counts(session: Path) -> None:
    result = invoke("run", session, "--no-cache")
    assert result.exit_code == 0, result.output
    assert "read 7  t2 f32[3]  [3, -6, 1.5]" in result.output
    assert "2 operations in 1 programs" in result.output


def test_check_accepts_the_recorded_answer(session: Path) -> None:
    result = invoke("run", session, "--check", "--no-cache")
    assert result.exit_code == 0, result.output
    assert "1 of 1 answers agree (f32: rtol 0.0001, atol 1e-05; the rest exact)" in result.output


def test_check_shows_the_first_difference_and_fails(wrong: Path) -> None:
    result = invoke("run", wrong, "--check", "--no-cache")
    assert result.exit_code == 1
    assert "DIFFERS in 1 of 3 beyond rtol 0.0001, atol 1e-05, by 0.25 at most" in result.output
    assert "[2] got 1.5, recorded 1.25" in result.output
    assert "0 of 1 answers agree" in result.output


def test_check_fails_where_no_answer_was_recorded(tmp_path: Path) -> None:
    file = tmp_path / "unanswered.jsonl"
    file.write_bytes(as_lines(doubled_sum([1], [3])[:-1]))
    result = invoke("run", file, "--check", "--no-cache")
    assert result.exit_code == 1
    assert "no answer was recorded" in result.output


def test_run_json(wrong: Path) -> None:
    result = invoke("run", wrong, "--check", "--json", "--no-cache", "--device", "0", "--precision", "default")
    assert result.exit_code == 1
    report = json.loads(result.output)
    [answer] = report["answers"]
    assert answer["values"] == [3, -6, 1.5]
    assert answer["agrees"] is False
    assert answer["differences"] == [{"index": [2], "got": 1.5, "recorded": 1.25}]
    assert answer["tolerance"] == {"rtol": 1e-4, "atol": 1e-5}
    assert report["summary"]["operations"] == 2
    assert report["summary"]["precision"] == "default"
    assert report["summary"]["bad"] == 1


def test_json_keeps_what_is_not_finite(tmp_path: Path) -> None:
    file = tmp_path / "infinite.jsonl"
    file.write_bytes(as_lines(doubled_sum([3e38, -3e38], [1, 1])))
    answer = json.loads(invoke("run", file, "--json", "--no-cache").output)["answers"][0]
    assert answer["values"] == ["Infinity", "-Infinity"]


def test_eager_gives_the_same_and_compiles_nothing(session: Path) -> None:
    result = invoke("run", session, "--check", "--eager", "--verify", "full", "--no-cache", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.output)["summary"]
    assert summary["compiles"] == 0
    assert summary["compared"] == 1


def test_a_failed_operation_is_named_and_fails_the_run(session: Path) -> None:
    lines = session.read_text().splitlines()
    text = "\n".join([*lines[:1], lines[1].replace('"dims":[3]', '"dims":[4]', 1), *lines[2:]])
    session.write_text(text)
    result = invoke("run", session, "--no-cache")
    assert result.exit_code == 1
    assert "FAILED" in result.output
    assert "Add" in result.output


def test_dump_hlo(session: Path, tmp_path: Path) -> None:
    result = invoke("run", session, "--no-cache", "--dump-hlo", tmp_path / "hlo")
    assert result.exit_code == 0
    [hlo] = (tmp_path / "hlo").glob("*.hlo")
    assert hlo.name == "program-000-2-ops.hlo"
    assert "HloModule" in hlo.read_text()
    assert "MulScalar(" in hlo.with_suffix(".txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "99"], "--device 99: expected 0 to 3; there are 0: "),
        (["--device", "tpu"], "pip install 'jax[tpu]'"),
        (["--device", "toaster"], "expected cpu, gpu, tpu or a number"),
    ],
)
def test_a_missing_device_is_named(session: Path, arguments: list[str], message: str) -> None:
    result = invoke("run", session, "--no-cache", *arguments)
    assert message in str(result.exception)


def test_a_bad_file_is_one_line_and_status_2(tmp_path: Path) -> None:
    file = tmp_path / "noise.bxs"
    file.write_bytes(b"\x93noise")
    done = start("inspect", str(file))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: header: ")
    assert done.stderr.count("\n") == 1


def test_a_second_process_takes_programs_from_disk(session: Path, tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    arguments = ("run", str(session), "--device", "cpu", "--check")
    assert start(*arguments, BURN_XLA_CACHE=str(folder)).returncode == 0
    kept = {f.name: f.stat().st_mtime_ns for f in folder.iterdir()}
    assert kept
    assert folder.stat().st_mode & 0o777 == 0o700
    assert start(*arguments, BURN_XLA_CACHE=str(folder)).returncode == 0
    assert {f.name: f.stat().st_mtime_ns for f in folder.iterdir() if not f.name.endswith("-atime")} == kept


def test_prune_deletes_the_oldest_files_first(tmp_path: Path) -> None:
    for age, name in enumerate(["new", "middle", "old"]):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    disk_cache.prune(tmp_path, 250)
    assert {f.name for f in tmp_path.iterdir()} == {"new", "middle"}
    assert disk_cache.size_bytes(tmp_path) == 200


def test_inspect_counts(session: Path) -> None:
    result = invoke("inspect", session)
    assert result.exit_code == 0, result.output
    assert "2 operations (0 Init and 0 Drop apart)" in result.output
    assert "1 tensors uploaded, 12 B" in result.output
    summary = json.loads(invoke("inspect", session, "--json").output)
    assert summary["forms"] == {"NumericFloat.Add": 1, "NumericFloat.MulScalar": 1}
    assert summary["types"] == {"f32[3]": 2}
    assert summary["uploaded_bytes"] == 12
    assert summary["answers"] == 1


def test_inspect_counts_graph_executions_with_their_sizes() -> None:
    summary = json.loads(invoke("inspect", FIXTURES / "mlp_fusion.bxs", "--json").output)
    assert summary["graphs"] == summary["messages"]["RegisterAndExecuteGraph"] == 8
    assert summary["graph_executions"] == 26
    assert summary["operations"] == 1433  # what a replay runs
    assert summary["largest"] == "f32[297,64]"


def test_coverage_json_has_both_irs() -> None:
    result = invoke("coverage", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["burn"]["total"] == 330
    assert report["meganeura"] == {"total": 75, "lowered": 75, "tested": 75}
    assert 0 < report["burn"]["tested"] <= report["burn"]["lowered"] <= 330
    families = report["families"]["burn"]
    assert sum(f["total"] for f in families.values()) == 330
    assert families["Activation"] == {"total": 14, "lowered": 14, "tested": 14}
    assert report["families"]["meganeura"]["conv"] == {"total": 11, "lowered": 11, "tested": 11}


def test_coverage_table() -> None:
    result = invoke("coverage")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].split() == ["family", "forms", "run", "tested"]


def test_doctor_finds_this_installation_fit() -> None:
    result = invoke("doctor", "--json")
    assert result.exit_code == 0, result.output
    findings = {f["what"]: f for f in json.loads(result.output)}
    assert findings["python"]["state"] == sys.version.split()[0]
    assert "cpu" in findings["device 0"]["state"]
    assert not any(f["is_fatal"] for f in findings.values())


def test_doctor_says_what_mends_an_unusable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(disk_cache.ENVIRONMENT, str(tmp_path / "locked" / "cache"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    result = invoke("doctor")
    assert result.exit_code == 0
    assert "not writable" in result.output
    assert f"-> export {disk_cache.ENVIRONMENT}=DIR" in result.output


def test_doctor_names_a_broken_jax_as_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    def broken() -> None:
        raise RuntimeError("no backend")

    monkeypatch.setattr(jax, "devices", broken)
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "jax does not start: no backend" in result.output
