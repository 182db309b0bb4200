"""`diff` and `shrink` find what was planted, called as a user calls them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from click.testing import Result

import ir
from ir import F32, F64, tensor
from ir.tensor import TensorData
from jax_backend import Recording, Tensor, record
from jax_backend.check import Tolerance
from jax_backend.faults import Differing, Failing, NonFinite
from jax_backend.host import from_numpy, to_numpy
from jax_backend.program_recorder import ProgramRecorder
from jax_backend.shrinking import leading_to
from jax_backend.sides import Compiled, Eager, Recorded, parse
from tests.jax_backend.test_cli import invoke
from tests.remote_client import RunningServer

X = np.array([[0.5, -1, 2], [3, 0.25, -2]], np.float32)


def save(path: Path, tape: ProgramRecorder, *reads: Tensor, answers: dict[int, np.ndarray] | None = None) -> Path:
    """The session of `tape`, with the tensors that are read and what came."""
    from ir.wire.messages import TensorResult
    from jax_backend.recording import Read

    for number, read in enumerate(reads, 1):
        data = (answers or {}).get(read.id)
        answer = TensorResult(Ok=from_numpy(data, read.dtype)) if data is not None else None
        tape.recording.reads.append(Read(len(tape.recording.ops), number, read.description, answer))
    tape.recording.save(path)
    return path


def layers(tape: ProgramRecorder, x: Tensor, count: int) -> Tensor:
    """Something harmless of three operations, `count` times."""
    for _ in range(count):
        x = (x * 0.5 + 0.25).tanh()
    return x


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """40 operations; the one at 21 takes the logarithm of numbers of which one is negative."""
    tape = record()
    x = layers(tape, tape.from_numpy(X), 6)
    y = (x - 0.4).abs() * x  # ops 18 to 20
    z = layers(tape, (y - 0.02).log(), 6)  # 21: sub, 22: log
    return save(tmp_path / "deep.bxs", tape, z)


@pytest.fixture
def cancelling(tmp_path: Path) -> Path:
    """The variance of numbers near 4096 as the mean of squares without the square of the mean, between other things."""
    tape = record()
    x = tape.from_numpy(np.array([4096.0, 4096.5, 4097.0, 4097.25, 4095.5], np.float32))
    scaled = x * 1.0 + 0.0
    variance = (scaled * scaled).mean() - scaled.mean() * scaled.mean()
    out = layers(tape, variance.sqrt(), 2)
    return save(tmp_path / "variance.bxs", tape, out)


def test_diff_finds_a_nan_deep_in_a_session(deep: Path, tmp_path: Path) -> None:
    out = tmp_path / "fault.bxs"
    result = invoke("diff", deep, "--nan", "--out", out)
    assert result.exit_code == 1, result.output
    assert "op 22 of 41 makes a NaN or an infinity" in result.output
    assert "Log(input=t" in result.output
    assert "lowered by jax_backend.ops.float.unary" in result.output
    assert f"reproduce with: burn-xla diff {out} --left eager --nan" in result.output
    small = Recording.load(out)
    assert [op.kind for op in small.ops] == ["Log"]
    (data,) = small.data.values()
    assert np.count_nonzero(to_numpy(data)) >= 1
    again = invoke("diff", out, "--nan", "--out", tmp_path / "again.bxs")
    assert again.exit_code == 1
    assert "op 0 of 1" in again.output


def test_diff_finds_where_float32_cancels(cancelling: Path, tmp_path: Path) -> None:
    out = tmp_path / "fault.bxs"
    result = invoke("diff", cancelling, "--right", "f64", "--out", out)
    assert result.exit_code == 1, result.output
    assert "eager against f64: op 7 of 15 differs" in result.output
    assert "Sub(lhs=t" in result.output
    small = Recording.load(out)
    assert small.ops[-1].kind == "Sub"
    assert 1 < len(small.ops) <= 6, "a subtraction alone is exact: what was rounded before it is needed"
    again = invoke("diff", out, "--right", "f64", "--out", tmp_path / "again.bxs")
    assert again.exit_code == 1
    assert f"op {len(small.ops) - 1} of {len(small.ops)} differs" in again.output


def test_a_difference_that_came_in_with_the_inputs_is_told_from_one_that_is_made(
    cancelling: Path, tmp_path: Path
) -> None:
    """A subtraction is exact on its inputs: the squares before it were rounded, which is within the tolerance."""
    result = invoke("diff", cancelling, "--right", "f64", "--out", tmp_path / "fault.bxs")
    assert "by itself, on the inputs of eager, f64 agrees: the difference came in with t" in result.output
    told = invoke("diff", cancelling, "--right", "f64", "--by-itself", "--out", tmp_path / "none.bxs")
    assert told.exit_code == 0, told.output
    strict = ("--rtol", "1e-9", "--atol", "1e-12", "--by-itself", "--json")
    made = invoke("diff", cancelling, "--right", "f64", *strict, "--out", tmp_path / "made.bxs")
    fault = json.loads(made.output[made.output.index("{") :])["fault"]
    assert (fault["kind"], fault["agrees_by_itself"]) in [("Mul", None), ("Mul", False), ("Mean", False)]


WRONG = """
import sys
import ir
from jax_backend import lowering, ops
from jax_backend.cli import main
right = lowering._lowerings[ir.SumDim]
lowering._lowerings[ir.SumDim] = lambda op, x: right(op, x) * 2 if op.axis == 1 else right(op, x)
main()
"""


def wrong(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in a process in which sums over axis 1 are twice what they should be."""
    command = [sys.executable, "-c", WRONG, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_diff_finds_a_wrong_lowering_with_a_server(server: RunningServer, tmp_path: Path) -> None:
    tape = record()
    x = layers(tape, tape.from_numpy(X), 2)
    shares = x / (x * x).sum_dim(1)  # op 7
    out = layers(tape, shares.sum_dim(0), 2)
    file = save(tmp_path / "model.bxs", tape, out)
    assert invoke("diff", file, "--right", server.url).exit_code == 0, "nothing is wrong in this process"
    target = tmp_path / "fault.bxs"
    result = wrong("diff", file, "--right", server.url, "--out", target, "--json")
    assert result.returncode == 1, result.stderr
    fault = json.loads(result.stdout)["fault"]
    assert (fault["op"], fault["kind"]) == (7, "SumDim")
    np.testing.assert_allclose(fault["output"]["left"], np.array(fault["output"]["right"]) * 2)
    assert all(operand["same"] for operand in fault["inputs"])
    small = Recording.load(target)
    assert [op.kind for op in small.ops] == ["SumDim"]
    (data,) = small.data.values()
    assert np.count_nonzero(to_numpy(data)) == 1
    assert wrong("run", "--check", target).returncode == 1
    assert invoke("run", "--check", target).exit_code == 0


# ---- the other sides


@pytest.mark.parametrize("right", ["compiled", "cpu", "1", "2+compiled", "f64", "recorded"])
def test_sides_that_agree(right: str, tmp_path: Path) -> None:
    tape = record()
    x = tape.from_numpy(X)
    y = layers(tape, x, 1)
    total = y.sum()
    draw = tape.random((3,))
    file = save(tmp_path / "same.bxs", tape, total, draw, answers={total.id: np.asarray(total.numpy())})
    result = invoke("diff", file, "--right", right)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{file}: eager against {right}")
    assert result.output.endswith(": 5 operations, nothing found\n")


def test_a_recorded_answer_that_is_wrong_is_found(tmp_path: Path) -> None:
    tape = record()
    x = tape.from_numpy(np.array([1, 2, 3], np.float32))
    y = x * 2
    z = y + 1
    file = save(tmp_path / "off.bxs", tape, y, z, answers={y.id: np.array([2, 4, 7], np.float32)})
    result = invoke("diff", file, "--right", "recorded", "--out", tmp_path / "fault.bxs")
    assert result.exit_code == 1
    assert "op 0 of 2 differs" in result.output
    assert "[2] eager 6.0, recorded 7.0" in result.output


def test_a_recorded_answer_of_another_shape_is_found(tmp_path: Path) -> None:
    tape = record()
    y = tape.from_numpy(np.array([1, 2, 3], np.float32)) * 2
    file = save(tmp_path / "off.bxs", tape, y, answers={y.id: np.array([2, 4], np.float32)})
    result = invoke("diff", file, "--right", "recorded", "--out", tmp_path / "fault.bxs")
    assert result.exit_code == 1
    assert "out t1 f32[3]: got shape [3], expected [2]" in result.output


def test_two_sessions_of_the_same_operations_are_compared(tmp_path: Path) -> None:
    files = []
    for name, shift in (("a", 1.0), ("b", 1.5)):
        tape = record()
        y = tape.from_numpy(np.array([1, 2, 3], np.float32)) * 2
        files.append(save(tmp_path / f"{name}.bxs", tape, (y + shift).exp()))
    out = tmp_path / "fault.bxs"
    result = invoke("diff", *files, "--out", out)
    assert result.exit_code == 1
    assert "op 1 of 3 differs" in result.output
    assert "AddScalar(lhs=t1 f32[3], rhs=1.0, out=t2 f32[3])" in result.output
    assert [op.kind for op in Recording.load(out).ops] == ["AddScalar"]
    assert invoke("diff", files[0], files[0]).exit_code == 0


def test_two_sessions_that_part_are_told_apart(tmp_path: Path) -> None:
    files = []
    for name in ("exp", "log"):
        tape = record()
        y = tape.from_numpy(np.array([1, 2, 3], np.float32)) * 2
        files.append(save(tmp_path / f"{name}.bxs", tape, getattr(y, name)()))
    result = invoke("diff", *files)
    assert result.exit_code == 1
    assert "op 1: the sessions part: Exp(input=t1 f32[3], out=t2 f32[3]) here, Log(" in str(result.exception)


def test_a_tolerance_can_be_given(tmp_path: Path) -> None:
    tape = record()
    x = tape.from_numpy(np.array([1], np.float32))
    y = x * 2
    file = save(tmp_path / "near.bxs", tape, y, answers={y.id: np.array([2.001], np.float32)})
    assert invoke("diff", file, "--right", "recorded", "--out", tmp_path / "f.bxs").exit_code == 1
    assert invoke("diff", file, "--right", "recorded", "--rtol", "0.01").exit_code == 0


def test_an_infinity_may_be_meant(tmp_path: Path) -> None:
    tape = record()
    x = tape.from_numpy(np.array([1, 2], np.float32))
    file = save(tmp_path / "mask.bxs", tape, (x * 0.0).log().exp())
    assert "op 1 of 3 makes" in invoke("diff", file, "--nan", "--out", tmp_path / "f.bxs").output
    assert invoke("diff", file, "--nan", "--skip-infinities").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--right", "gpux"], "side: expected one of eager, compiled, f64, recorded, a device or ws://host:port"),
        (["--right", "ws://127.0.0.1:1"], "ws://127.0.0.1:1: cannot be reached"),
        (["--nan", "--right", "f64"], "--nan looks at one side"),
    ],
)
def test_sides_that_are_not_there(deep: Path, arguments: list[str], message: str) -> None:
    result: Result = invoke("diff", deep, *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.output + str(result.exception)


# ---- shrinking


def test_shrink_keeps_what_fails(tmp_path: Path) -> None:
    """A Matmul that declares another shape than it has, after other operations."""
    tape = record()
    x = layers(tape, tape.from_numpy(X), 3)
    recording = tape.recording
    bad = ir.Reshape(tensor(x.id, (2, 3), F32), tensor(100, (7,), F32, ir.NOT_INIT))
    recording.append(bad)
    recording.append(ir.Neg(tensor(100, (7,), F32), tensor(101, (7,), F32, ir.NOT_INIT)))
    recording.save(tmp_path / "bad.bxs")
    out = tmp_path / "small.bxs"
    result = invoke("shrink", tmp_path / "bad.bxs", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["fault"]["kind"] == "Reshape"
    assert "cannot reshape array of shape (2, 3)" in found["fault"]["error"]
    small = Recording.load(out)
    assert [op.kind for op in small.ops] == ["Reshape"]
    assert not to_numpy(next(iter(small.data.values()))).any()


def test_shrink_cuts_a_nan_to_its_operation(deep: Path, tmp_path: Path) -> None:
    result = invoke("shrink", deep, "--fails", "nan", "--out", tmp_path / "small.bxs")
    assert result.exit_code == 0, result.output
    assert "1 operation on 1 uploaded tensor, from 41" in result.output


def test_shrink_leaves_out_what_has_no_part_in_a_wrong_answer(tmp_path: Path) -> None:
    tape = record()
    x = tape.from_numpy(np.array([1, 2], np.float32))
    other = layers(tape, x, 3)
    y = x * 2
    z = y + 1
    file = save(tmp_path / "off.bxs", tape, z, other, answers={z.id: np.array([3, 6], np.float32)})
    result = invoke("shrink", file, "--out", tmp_path / "small.bxs")
    assert result.exit_code == 0, result.output
    assert [op.kind for op in Recording.load(tmp_path / "small.bxs").ops] == ["MulScalar", "AddScalar"]


def test_what_does_not_fail_cannot_be_shrunk(tmp_path: Path) -> None:
    tape = record()
    file = save(tmp_path / "good.bxs", tape, tape.from_numpy(X) * 2)
    result = invoke("shrink", file)
    assert "nothing fails: 1 operations, eager against recorded" in str(result.exception)


# ---- the searches by themselves


def test_a_side_in_float64_computes_in_float64() -> None:
    tape = record()
    x = tape.from_numpy(np.array([1], np.float32))
    y = x / 3.0
    (made,) = parse("f64").run(tape.recording, {})
    assert made[y.id].dtype == np.float64
    assert made[y.id][0] == 1 / 3


def test_random_numbers_do_not_differ_between_sides() -> None:
    tape = record(seed=4)
    first = tape.random((3,))
    second = tape.random((3,)) * first
    device = jax.devices()[0]
    for right in (Compiled("compiled", device), parse("f64")):
        assert Differing(Eager("eager", device), right, Tolerance(1e-6, 0.0)).find(tape.recording) is None
    assert second.shape == (3,)


def test_the_results_of_a_program_are_those_of_the_program_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that only a program with its real outputs has: as XLA would make one by fusing more."""
    tape = record()
    x = tape.from_numpy(np.array([1, 2], np.float32))
    y = (x * 2 + 1).exp()
    whole = Recording.program

    def faulty(self: Recording, span: Any, outputs: Any = None, **options: Any) -> Any:
        made = whole(self, span, outputs, **options)
        if outputs == [y.id]:
            original = made._body
            monkeypatch.setattr(made, "_body", lambda given: {k: v + 1 for k, v in original(given).items()})
        return made

    for id in (1, 2):
        tape.recording.end(id)
    monkeypatch.setattr(Recording, "program", faulty)
    fault = Differing(parse("eager"), parse("compiled")).find(tape.recording)
    assert fault is not None
    assert (fault.place, fault.op.kind) == (2, "Exp")


def test_a_sum_of_integers_is_compared_exactly() -> None:
    tape = record()
    x = tape.from_numpy(np.array([2**24, 1], np.int32))
    total = x.sum()
    from ir.wire.messages import TensorResult
    from jax_backend.recording import Read

    off = TensorResult(Ok=TensorData(np.array([2**24], np.int32).view(np.uint8).data, (1,), ir.I32))
    tape.recording.reads.append(Read(1, 1, total.description, off))
    fault = Differing(parse("eager"), Recorded()).find(tape.recording)
    assert fault is not None
    assert fault.comparison is not None
    assert fault.comparison.max_abs == 1.0


def test_a_nan_that_comes_in_is_not_made() -> None:
    tape = record()
    x = tape.from_numpy(np.array([np.nan, 1], np.float32))
    y = x + 1
    z = y.log()
    assert NonFinite(parse("eager")).find(tape.recording) is None
    assert Failing(parse("eager")).find(tape.recording) is None
    assert leading_to(tape.recording, [z.id]) == [0, 1]
    assert F64.size_bytes == 8
