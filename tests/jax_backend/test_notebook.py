"""How things look in a notebook: well-formed, escaped, and without computing anything."""

from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

import ir
from ir.meganeura import Graph
from jax_backend import CapturingRecorder, Recorder, Recording
from jax_backend.meganeura import Session
from jax_backend.notebook import operations, panel, preview
from jax_backend.program import Program
from tests.jax_backend.test_session_report import record_layers

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
VOID = {"rect", "br"}


class Text(HTMLParser):
    """The text of a page, its tags checked to be nested; a table row is a line."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lines = [""]
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script"
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("tr", "summary", "div"):
            self.lines.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.lines[-1] = f"{self.lines[-1]} {data}".strip()


def lines(shown: object) -> list[str]:
    return Text(shown if isinstance(shown, str) else shown._repr_html_()).lines  # type: ignore[attr-defined]


def test_a_recorded_tensor_says_so_and_is_not_computed_by_looking() -> None:
    recorder = Recorder()
    x = recorder.from_numpy(np.ones((2, 3), np.float32))
    y = x.exp()
    assert lines(y) == ["", "Tensor f32[2,3] t1 in the stream · 6 elements · recorded; .numpy() computes it"]
    assert (recorder.cache.stats.compiles, recorder.num_pending) == (0, 1)


@pytest.mark.parametrize("captured", [False, True])
def test_a_computed_tensor_shows_its_elements(captured: bool) -> None:
    recorder = CapturingRecorder(Recorder(), BytesIO()) if captured else Recorder()
    y = recorder.from_numpy(np.array([[0, 1], [2, np.inf]], np.float32)) * 2.5
    y.numpy()
    found = lines(y)
    assert found[1] == "Tensor f32[2,2] t1 in the stream · 4 elements · computed"
    assert found[2] == "1 not finite · min 0 · mean 2.5 · max 5"
    assert found[4:] == ["0 2.5", "5 inf"]


def test_a_large_array_shows_a_corner_and_how_it_is_spread() -> None:
    html = preview(np.arange(3 * 20 * 30).reshape(3, 20, 30))
    found = lines(html)
    assert "0 1 2 3 4 5 6 7" in found
    assert found[-1].endswith("the part [0, :8, :8]")
    assert html.count("<rect") == 40


def test_a_bool_and_an_empty_array_can_be_looked_at() -> None:
    assert "True False" in lines(preview(np.array([True, False])))[-1]
    recorder = Recorder()
    empty = recorder.from_numpy(np.zeros((0, 3), np.float32))
    assert lines(empty)[1].endswith("0 elements · computed")


def test_a_recorder_lists_its_programs_with_their_reasons() -> None:
    recorder = Recorder(name="a <b> & c")
    record_layers(recorder, np.ones((5, 7), np.float32), 2)
    record_layers(recorder, np.ones((3, 7), np.float32), 2)
    html = recorder._repr_html_()
    assert "a &lt;b&gt; &amp; c" in html
    found = lines(html)
    assert "0 operations pending · 16 run in 2 programs · 2 compiled in" in found[1]
    assert found[2] == "2 programs"
    assert any(line.startswith("1 8 ") and "f32[5,7] before, f32[3,7] now" in line for line in found)


def test_a_program_shows_what_it_takes_and_folds_its_layers() -> None:
    tensors = [ir.tensor(n, (2, 3), ir.F32) for n in range(10)]
    ops = [
        op
        for n in range(0, 9, 3)
        for op in (
            ir.AddScalar(tensors[n], ir.scalar(0.5), tensors[n + 1]),
            ir.Exp(tensors[n + 1], tensors[n + 2]),
            ir.Neg(tensors[n + 2], tensors[n + 3]),
        )
    ]
    program = Program.from_ops(ops, [9], names={0: "x"}, name="layers")
    found = lines(program)
    assert found[1] == "layers 1 input, 0 recorded · 1 output"
    assert found[2:5] == ["1 input", "name type value", "x float32[2,3]"]
    assert "op3_rhs float32[] 0.5" in found
    assert "3 × 3 operations, the first: AddScalar, Exp, Neg" in found
    assert "2 Neg t3 f32[2,3] t2 f32[2,3]" in found
    assert lines(operations(ops[:3]))[2] == "0 AddScalar t1 f32[2,3] t0 f32[2,3] rhs=0.5"


def test_a_derived_function_shows_its_signature() -> None:
    x = ir.tensor(0, (1,), ir.F32)
    gradient = Program.from_ops([ir.Exp(x, ir.tensor(1, (1,), ir.F32))], names={0: "x"}).grad()
    assert lines(gradient)[-1] == "d_x float32[1]"


def test_a_recording_shows_the_programs_that_a_recorder_makes_of_it() -> None:
    found = lines(Recording.load(FIXTURES / "mlp.bxs"))
    assert found[1] == "Recording 1,213 operations · 30 uploads · 4 reads"
    assert found[2] == "4 spans"
    assert found[-1].endswith("read")


def test_a_session_of_a_graph_shows_its_parameters() -> None:
    graph = Graph()
    product = graph.matmul(graph.input("x", (2, 3)), graph.parameter("w", (3, 5)))
    graph.set_outputs([product])
    found = lines(Session(graph))
    assert "w [3, 5]" in found
    assert "x [2, 3]" in found


def test_what_a_panel_is_told_is_escaped() -> None:
    assert lines(panel("<i>", ["a & b", ""])) == ["", "<i> a & b"]
