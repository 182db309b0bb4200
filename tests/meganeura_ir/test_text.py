"""The text of a graph is what Rust prints, and comes back."""

import math

import pytest

from ir.errors import IrError
from ir.meganeura import Graph
from ir.meganeura.ops import MultiHeadAttnGradQ, Nop
from ir.meganeura.text import debug, float_debug
from tests.meganeura_ir.rust_graphs import names, rust_graph


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-5, "1e-5"),
        (9.9e-5, "9.9e-5"),
        (0.0001, "0.0001"),
        (0.00012345, "0.00012345"),
        (1e16, "1e16"),
        (-1.5e20, "-1.5e20"),
        (1e15, "1000000000000000.0"),
        (1 / 3, "0.33333334"),
        (3.4028234663852886e38, "3.4028235e38"),
        (1e-45, "1e-45"),
        (-0.0, "-0.0"),
        (0.0, "0.0"),
        (0.1, "0.1"),
        (10000.0, "10000.0"),
        (123456.79, "123456.79"),
        (16777216.0, "16777216.0"),
        (4096193.25, "4096193.3"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_floats_are_printed_as_rust_does(value: float, text: str) -> None:
    assert float_debug(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", '"a b"'),
        ('a"b\\', r'"a\"b\\"'),
        ("a\n\t\r\0'", r'''"a\n\t\r\0'"'''),
        ("\x1b", r'"\u{1b}"'),
        ("grün → 木", '"grün → 木"'),
    ],
)
def test_names_are_escaped_as_rust_does(value: str, text: str) -> None:
    assert debug(value) == text


def test_a_graph_prints_a_line_per_node_and_its_outputs() -> None:
    g = Graph()
    x, w = g.input("x", [2, 3]), g.parameter("w", [3])
    half = g.constant([1.0, 0.5], [2])
    normed = g.rms_norm(x, w, 1e-5)
    g.set_outputs([normed, half])
    assert str(g) == (
        '%0 = Input { name: "x" }() : F32<[2, 3]>\n'
        '%1 = Parameter { name: "w" }() : F32<[3]>\n'
        "%2 = Constant { data: [1.0, 0.5] }() : F32<[2]>\n"
        "%3 = RmsNorm { eps: 1e-5 }(%0, %1) : F32<[2, 3]>\n"
        "outputs: %3, %2\n"
    )


def test_an_empty_graph_prints_its_outputs() -> None:
    assert str(Graph()) == "outputs: \n"
    assert repr(Graph()) == "<Graph of 0 nodes, 0 outputs>"
    assert Graph.parse("outputs: \n") == Graph()


def test_a_gradient_of_attention_prints_its_forward_node_among_the_attributes() -> None:
    g = Graph()
    q = g.input("q", [3, 4])
    forward = g.causal_attention(q, q, q, 2, 2, 2)
    heads = {"num_heads": 2, "num_kv_heads": 2, "head_dim": 2, "is_cross": False}
    g.add_raw_node(MultiHeadAttnGradQ, [q, q, q, q], g.ty(q), fwd_node=forward, **heads)
    shown = "MultiHeadAttnGradQ { fwd_node: 1, num_heads: 2, num_kv_heads: 2, head_dim: 2, is_cross: false }"
    assert str(g).splitlines()[2] == f"%2 = {shown}(%0, %0, %0, %0) : F32<[3, 4]>"
    assert Graph.parse(str(g)) == g


@pytest.mark.parametrize("name", [n for n in names() if "135m" not in n and "500m" not in n and "base" not in n])
def test_a_text_comes_back_as_its_graph(name: str) -> None:
    graph = rust_graph(name).copy()
    graph.derived_params = []
    assert Graph.parse(str(graph)) == graph


def test_odd_names_numbers_and_deleted_nodes_come_back() -> None:
    g = Graph()
    for name in ('a"b', "a\\", "}() : F32<[1]>", "x, y: 1", "\n\t\0'", "\x1b木", ""):
        g.parameter(name, [])
    g.input_u32("u", [0])
    g.constant([math.inf, -math.inf, -0.0, 1e-45, 0.1], [5])
    g.constant([], [0])
    g.relu(0)
    g.replace_node(10, Nop, [0])
    g.replace_node(8, g.op(8), [])
    g.set_outputs([0, 0])
    assert Graph.parse(str(g)) == g


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected `outputs: %id, …`, got ''"),
        ("%0 = Relu() : F32<[1]>\n", "line 1: expected `outputs"),
        ("nonsense\noutputs: \n", "line 1: expected `%id = Op"),
        ('%0 = Input { name: "x" }() : F64<[1]>\noutputs: \n', "line 1: Invalid enum value 'F64'"),
        (
            "%0 = Input { name: x }() : F32<[1]>\noutputs: \n",
            "line 1: expected a number, true, false, a text or a list",
        ),
        ('%0 = Input { name "x" }() : F32<[1]>\noutputs: \n', "line 1: expected `name: value`"),
        ('%0 = Input { name: "x" }() : F32<[1]>\noutputs: 0\n', "line 2: expected node ids"),
        ('%0 = Input { name: "x" }() : F32<[1]>\noutputs: %1\n', "node %1 does not exist"),
        ('%1 = Input { name: "x" }() : F32<[1]>\noutputs: \n', "nodes[0].id: expected 0"),
        ('%0 = Inputs { name: "x" }() : F32<[1]>\noutputs: \n', "nodes[0].op: unknown operation 'Inputs'"),
        ('%0 = Input { name: "x" }() : F32<[1 2]>\noutputs: \n', "line 1: expected `%id = Op"),
        ("%0 = Relu(%0 %0) : F32<[1]>\noutputs: \n", "line 1: expected `%id = Op"),
        ("%0 = Relu(%0, %0) : F32<[1]>\noutputs: \n", "nodes[0].Relu.inputs: expected 1 (x), got 2"),
    ],
)
def test_a_text_that_is_no_graph_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(IrError) as refused:
        Graph.parse(text)
    assert message in str(refused.value)
