"""`profile` measures, and `export` writes what runs elsewhere."""

import gzip
import json
from pathlib import Path
from typing import Any

import jax.export
import numpy as np
import pytest

import ir
from ir.wire.capture import read_messages
from jax_backend import Recorder, record
from jax_backend.capturing import CapturingRecorder
from jax_backend.profiling import KindTime, OpTime, Profile, profile
from tests.jax_backend.test_cli import invoke

X = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of one program, each read, and then another program."""
    path = tmp_path_factory.mktemp("profile") / "steps.bxs"
    with path.open("wb") as file, CapturingRecorder(Recorder(), file) as recorder:
        x, w = recorder.from_numpy(X), recorder.from_numpy(X.T.copy())
        for _ in range(3):
            (x @ w).tanh().sum().numpy()
        x.exp().numpy()
    return path


def test_profile_measures_programs_and_operations(session: Path) -> None:
    result = invoke("profile", session, "--device", "cpu", "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert [(p["operations"], p["runs"]) for p in found["programs"]] == [(3, 3), (1, 1)]
    assert found["operations"] == 10
    assert found["programs"][0]["flops"] >= 2 * 64 * 64 * 32
    assert [(op["program"], op["place"], op["kind"], op["runs"]) for op in found["ops"]] == [
        (0, 0, "Matmul", 3),
        (0, 1, "Tanh", 3),
        (0, 2, "Sum", 3),
        (1, 0, "Exp", 1),
    ]
    assert all(0 < op["alone_s"] < 1 for op in found["ops"])
    assert 0 < sum(op["inside_s"] for op in found["ops"][:3]) < 1
    assert {k["kind"]: k["count"] for k in found["kinds"]} == {"Matmul": 3, "Tanh": 3, "Sum": 3, "Exp": 1}
    assert found["failures"] == []


def test_profile_prints_tables(session: Path) -> None:
    result = invoke("profile", session, "--device", "cpu", "--no-alone", "--top", "2")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("10 operations in 4 runs of 2 programs on cpu:0 (cpu), ")
    headers = [line.split()[:2] for line in lines if line.strip().startswith(("program", "kind", "op "))]
    assert headers == [["program", "ops"], ["kind", "count"], ["op", "kind"]]
    assert sum(line.startswith(("Matmul", "Tanh", "Sum", "Exp")) for line in lines) == 2


def test_profile_writes_a_trace(session: Path, tmp_path: Path) -> None:
    result = invoke("profile", session, "--device", "cpu", "--no-alone", "--trace", tmp_path / "trace")
    assert result.exit_code == 0, result.output
    (trace,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    instructions = {event["args"]["hlo_op"] for event in events if "hlo_op" in event.get("args", {})}
    assert len(instructions) >= 2, "each program has one at least"
    assert str(tmp_path / "trace") in result.output


def test_a_kind_takes_what_its_operations_take() -> None:
    ops = [
        OpTime(0, 0, "Add", "f32[2]", 1.0, 0.5, runs=3),
        OpTime(0, 1, "Exp", "f32[2]", 2.0, 0.25, runs=3),
        OpTime(1, 0, "Add", "f32[3]", 4.0, 1.0, runs=1),
    ]
    report: Any = None
    assert Profile(report, ops).kinds() == [KindTime("Add", 4, 7.0, 2.5), KindTime("Exp", 3, 6.0, 0.75)]


def test_a_failing_session_is_profiled_up_to_there(tmp_path: Path) -> None:
    tape = record()
    bad = ir.Reshape(ir.tensor(0, (2, 3), ir.F32), ir.tensor(1, (7,), ir.F32, ir.NOT_INIT))
    tape.recording.data[0] = ir.TensorData(X[:2, :3].copy().view(np.uint8).reshape(-1).data, (2, 3), ir.F32)
    tape.recording.append(bad)
    from jax_backend.recording import Read

    tape.recording.reads.append(Read(1, 1, ir.tensor(1, (7,), ir.F32), None))
    tape.recording.save(tmp_path / "bad.bxs")
    found = profile("bad", list(read_messages(tmp_path / "bad.bxs")))
    assert found.ops == []
    assert "cannot reshape" in found.report.failures[0]


# ---- export


def test_export_lists_the_programs_of_a_session(session: Path, tmp_path: Path) -> None:
    result = invoke("export", session, tmp_path / "out.jax")
    assert result.exit_code == 2
    assert "expected --segment, one of the 4 above" in result.output
    assert [line.split() for line in result.output.splitlines()[1:5]] == [
        ["0", "0", "0", "to", "3", "read"],
        ["1", "0", "3", "to", "6", "read"],
        ["2", "0", "6", "to", "9", "read"],
        ["3", "1", "9", "to", "10", "read"],
    ]
    assert "--segment: expected 0 to 3, got 4" in invoke("export", session, tmp_path / "o.jax", "--segment", "4").output


def test_export_writes_a_file_for_jax(session: Path, tmp_path: Path) -> None:
    out = tmp_path / "step.jax"
    result = invoke("export", session, out, "--segment", "1", "--input", "t0", "--platform", "cpu", "--json")
    assert result.exit_code == 0, result.output
    known = json.loads(result.stdout)
    assert known["inputs"] == ["t0 float32[64,32]"]
    exported = jax.export.deserialize(bytearray(out.read_bytes()))
    assert exported.platforms == ("cpu",)
    np.testing.assert_allclose(exported.call(t0=2 * X), [np.tanh(2 * X @ X.T).sum()], rtol=1e-4, atol=1e-3)


def test_export_writes_python(session: Path, tmp_path: Path) -> None:
    out = tmp_path / "step.py"
    result = invoke("export", session, out, "--segment", "3")
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{out}: 1 operations, ")
    scope: dict[str, Any] = {}
    exec(out.read_text(encoding="utf-8"), scope)
    np.testing.assert_allclose(scope["ops_9_to_10"](X), np.exp(X), rtol=1e-6)
