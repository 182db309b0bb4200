"""What `burn-xla inspect --html` says of a session: programs, rules, blocks, bytes, seconds."""

import gzip
import re
from base64 import b64decode
from pathlib import Path

import jax
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import ir
from ir.errors import IrError
from ir.meganeura import Graph
from ir.meganeura import program as graph_program
from ir.segment import Rule
from ir.stream import relativise
from ir.wire.capture import read_messages
from jax_backend import CapturingRecorder, Recorder
from jax_backend.cli import cli
from jax_backend.op_times import places, traced_seconds
from jax_backend.repeats import Block, fold
from jax_backend.report_page import page
from jax_backend.session_report import Report, graph_report, live_bytes, report
from jax_backend.tensor import Tensor, TensorRecorder

HLO = """HloModule jit_program

%inner.1 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  ROOT %add.0 = f32[] add(%a, %a), metadata={op_name="jit(program)/SumDim.12/reduce_sum" stack_frame_id=2}
}

%fused_computation (p: f32[300]) -> f32[] {
  %exp.7 = f32[300]{0} exponential(%p), metadata={op_name="jit(program)/Exp.3/exp"}
  ROOT %reduce.0 = f32[] reduce(%exp.7, %c), to_apply=%inner.1, metadata={op_name="jit(program)/SumDim.12/sum"}
}

ENTRY %main.9 (x.1: f32[300]) -> f32[] {
  %copy.1 = f32[300]{0} copy(%x.1)
  %neg.1 = f32[300]{0} negate(%copy.1), metadata={op_name="jit(program)/Neg.0/neg"}
  ROOT %exp_fusion = f32[] fusion(%neg.1), calls=%fused_computation, metadata={op_name="jit(program)/SumDim.12/sum"}
}
"""


def record_layers(recorder: TensorRecorder, values: np.ndarray, layers: int) -> np.ndarray:
    """`layers` times x -> exp(x @ w + b) / 2, as four operations, read at the end."""
    x: Tensor = recorder.from_numpy(values)
    size = values.shape[1]
    for _ in range(layers):
        w = recorder.from_numpy(np.full((size, size), 0.01, np.float32))
        b = recorder.from_numpy(np.zeros((1, size), np.float32))
        x = (x @ w + b).exp() / 2
    return x.numpy()


def session(path: Path, rounds: int = 3) -> Path:
    with path.open("wb") as file, CapturingRecorder(Recorder(), file) as recorder:
        for _ in range(rounds):
            record_layers(recorder, np.ones((5, 7), np.float32), 4)
    return path


def test_a_session_is_told_by_programs_runs_and_rules(tmp_path: Path) -> None:
    found = report("layers", read_messages(session(tmp_path / "layers.bxs")))
    assert (found.operations, found.reads, found.failures) == (48, 3, [])
    assert [(run.program, run.rule) for run in found.runs] == [(0, Rule.END), (0, Rule.KNOWN), (0, Rule.KNOWN)]
    (program,) = found.programs
    assert [op.kind for op in program.ops] == ["Matmul", "Add", "Exp", "DivScalar"] * 4
    assert program.blocks == [Block(0, 4, 4, [0, 1, 2, 3])]
    assert program.runs == 3
    assert program.run_s == pytest.approx(sum(run.seconds for run in found.runs))
    assert program.hlo.startswith("HloModule")
    assert [word for word in ("FileNames", ".py", "stack_frame") if word in program.hlo] == []
    assert program.reason == "a sequence of operations not seen before"
    assert sum(op.seconds for op in program.ops) > 0
    assert {op.num_bytes for op in program.ops} == {5 * 7 * 4}
    assert program.ops[3].fields == [("rhs", "an argument")]
    # x (5, 7), four w (7, 7) and four b (1, 7) come in.
    assert program.memory["argument"] == 4 * (35 + 4 * (49 + 7)) + 4 * len(program.ops) // 4


def test_a_meganeura_graph_is_one_program(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", (2, 3))
    for n in range(3):
        x = graph.relu(graph.matmul(x, graph.parameter(f"w{n}", (3, 3))))
    graph.set_outputs([x])
    (tmp_path / "graph.json").write_bytes(graph.to_json())
    target = tmp_path / "graph.html"
    arguments = ["inspect", str(tmp_path / "graph.json"), "--html", str(target), "--device", "cpu"]
    done = CliRunner().invoke(cli, arguments)
    assert (done.exit_code, done.output) == (0, f"{target}: 6 operations\n")
    found = graph_report("graph", graph_program(graph).relative())
    (program,) = found.programs
    assert [op.kind for op in program.ops] == ["MatMul", "Relu"] * 3
    assert program.blocks == [Block(0, 2, 3, [0, 1])]
    assert (program.runs, [run.rule for run in found.runs]) == (1, [Rule.END])
    assert "Relu.5/" in program.hlo


def test_what_a_read_cannot_give_is_told(tmp_path: Path) -> None:
    path = tmp_path / "failed.bxs"
    with path.open("wb") as file, CapturingRecorder(Recorder(), file) as recorder:
        lost = recorder.wrap(ir.tensor(77, (2,), ir.F32))
        with pytest.raises(IrError):
            lost.exp().numpy()
    (failure,) = report("failed", read_messages(path)).failures
    assert "t77 was never made" in failure


def test_the_page_holds_the_report_and_nothing_of_it_is_markup(tmp_path: Path) -> None:
    found = report("<b>&.bxs", read_messages(session(tmp_path / "layers.bxs", rounds=1)))
    text = page(found)
    assert "<title>&lt;b&gt;&amp;.bxs · burn-xla</title>" in text
    (packed,) = re.findall(r'<script type="text/plain" id="data">(.*?)</script>', text)
    assert msgspec.json.decode(gzip.decompress(b64decode(packed)), type=Report) == found
    assert re.findall(r"(?:src|href)=|@import|url\(", text) == []


def test_live_bytes_count_what_is_used_later_or_returned() -> None:
    x, a, b, c = (ir.tensor(n, (2,), ir.F32) for n in range(4))
    last_use = ir.tensor(1, (2,), ir.F32, ir.READ_WRITE)
    graph, _ = relativise([ir.Exp(x, a), ir.Exp(a, b), ir.Exp(last_use, c)])
    # x ends with the first operation, a with the third; b and c are returned.
    assert live_bytes(graph) == [8, 16, 16]


def test_instructions_lead_to_operations_through_what_they_call() -> None:
    assert places(HLO) == {"add.0": (12,), "exp.7": (3,), "reduce.0": (12,), "neg.1": (0,), "exp_fusion": (3, 12)}


def test_a_trace_times_the_instructions_of_a_program() -> None:
    compiled = jax.jit(lambda x: jax.lax.sort(x @ x)).lower(jax.ShapeDtypeStruct((64, 64), np.float32)).compile()
    x = np.ones((64, 64), np.float32)
    seconds = traced_seconds(lambda: jax.block_until_ready(compiled(x)))
    assert any(name.startswith("sort") for name in seconds)
    assert all(0 < taken < 5 for taken in seconds.values())


def unfolded(places: list[int | Block], shift: int = 0) -> list[int]:
    found: list[int] = []
    for place in places:
        if isinstance(place, Block):
            for round in range(place.times):
                found += unfolded(place.body, shift + round * place.length)
        else:
            found.append(place + shift)
    return found


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 6))
def test_a_folded_sequence_unfolds_to_each_place_once_and_its_rounds_are_equal(names: list[int], shortest: int) -> None:
    folded = fold(names, shortest=shortest)
    assert unfolded(folded) == list(range(len(names)))
    for block in folded:
        if isinstance(block, Block):
            assert block.times >= 2
            assert block.length * block.times >= shortest
            whole = names[block.start : block.start + block.length * block.times]
            assert whole == names[block.start : block.start + block.length] * block.times


def test_the_outer_loop_is_found_before_the_inner_one() -> None:
    folded = fold("aab" * 5 + "c", shortest=2)
    assert folded == [Block(0, 3, 5, [Block(0, 1, 2, [0]), 2]), 15]
