"""JSON and msgpack: the crate's own bytes, round trips of every kind, and bad input of every kind."""

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

import msgpack
import msgspec
import pytest

from ir.errors import IrError, StreamError, WireError
from ir.meganeura import DerivedParam, Graph, differentiate, kinds, optimize, program
from ir.meganeura.node import attribute_fields, has_mark
from ir.meganeura.ops.records import Mark
from ir.op import Role, fields
from tests.meganeura_ir.calls import every_kind
from tests.meganeura_ir.rust_graphs import contents, names, rust_graph

MATMUL = (
    '{"nodes":[{"id":0,"op":{"Input":{"name":"x"}},"inputs":[],"ty":{"shape":[2,3],"dtype":"F32"}},'
    '{"id":1,"op":{"Parameter":{"name":"w"}},"inputs":[],"ty":{"shape":[3],"dtype":"F32"}},'
    '{"id":2,"op":{"RmsNorm":{"eps":0.1}},"inputs":[0,1],"ty":{"shape":[2,3],"dtype":"F32"}},'
    '{"id":3,"op":"Relu","inputs":[2],"ty":{"shape":[2,3],"dtype":"F32"}}],'
    '"outputs":[3],"derived_params":[{"name":"w","sources":[["a",1],["b",2]],"rows":3}]}'
)


def small() -> Graph:
    g = Graph()
    x, w = g.input("x", [2, 3]), g.parameter("w", [3])
    g.set_outputs([g.relu(g.rms_norm(x, w, 0.1))])
    g.derived_params = [DerivedParam("w", (("a", 1), ("b", 2)), 3)]
    return g


def test_json_is_that_of_serde() -> None:
    assert small().to_json().decode() == MATMUL
    assert Graph.from_json(MATMUL) == small()
    assert Graph.from_json(json.dumps(json.loads(MATMUL), indent=2)) == small()


def test_msgpack_is_that_of_rmp_serde() -> None:
    """An independent encoder of arrays and 4-byte floats gives the same bytes."""
    ty, float32 = [[2, 3], "F32"], msgpack.Packer(use_single_float=True)
    nodes = [
        [0, {"Input": ["x"]}, [], ty],
        [1, {"Parameter": ["w"]}, [], [[3], "F32"]],
        [2, {"RmsNorm": [0.1]}, [0, 1], ty],
        [3, "Relu", [2], ty],
    ]
    assert small().to_msgpack() == float32.pack([nodes, [3], [["w", [["a", 1], ["b", 2]], 3]]])


@pytest.mark.parametrize("name", names())
def test_the_crates_own_files_load_and_are_written_alike(name: str) -> None:
    graph, content = rust_graph(name), contents()[name]
    if content.startswith(b"{"):
        assert json.loads(graph.to_json()) == json.loads(content)
        assert Graph.from_msgpack(graph.to_msgpack()) == graph
    else:
        assert graph.to_msgpack() == content


def test_msgpack_with_records_as_maps_loads_too() -> None:
    assert Graph.from_msgpack(msgpack.packb(json.loads(MATMUL))) == small()


def test_a_long_constant_comes_back() -> None:
    for count in (15, 16, 65536):
        g = Graph()
        g.constant([n / 7 for n in range(count)], [count])
        g.full(1 / 3, [count])
        assert Graph.from_msgpack(g.to_msgpack()) == g
        assert Graph.from_json(g.to_json()) == g
    assert msgpack.unpackb(g.to_msgpack())[0][0][1]["Constant"][0][:2] == [0.0, 0.1428571492433548]


def test_json_has_no_nan() -> None:
    g = Graph()
    g.constant([1.0, float("nan")], [2])
    with pytest.raises(WireError, match=r"nodes\[0\].Constant.data: JSON has no nan; write msgpack instead"):
        g.to_json()
    assert Graph.from_msgpack(g.to_msgpack()) == g


@cache
def examples() -> dict[str, dict[str, Any]]:
    """A graph, as parsed JSON, that ends with a node of each kind."""
    return {kind: json.loads(graph.to_json()) for kind, graph in every_kind().items()}


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_comes_back(kind: str) -> None:
    text = json.dumps(examples()[kind])
    graph = Graph.from_json(text)
    assert graph.nodes()[-1].op.kind == kind
    assert json.loads(graph.to_json()) == json.loads(text)
    assert Graph.from_msgpack(graph.to_msgpack()) == graph
    assert Graph.parse(str(graph)) == graph


def refused(graph: dict[str, Any]) -> IrError:
    with pytest.raises(IrError) as error:
        Graph.from_json(json.dumps(graph))
    return error.value


def changed(kind: str) -> tuple[dict[str, Any], dict[str, Any], int]:
    """A copy of the example of `kind`, its last node, and that node's place."""
    graph = copy.deepcopy(examples()[kind])
    return graph, graph["nodes"][-1], len(graph["nodes"]) - 1


@pytest.mark.parametrize("kind", sorted(kinds().keys() - {"Nop"}))
def test_every_kind_needs_its_inputs(kind: str) -> None:
    graph, node, place = changed(kind)
    node["inputs"] = [*node["inputs"], 0, 0]
    error = refused(graph)
    assert isinstance(error, StreamError)
    assert f"nodes[{place}].{kind}.inputs: expected" in str(error)
    if node["inputs"][:-2]:
        node["inputs"] = [place + 5, *node["inputs"][1:-2]]
        assert f"nodes[{place}].{kind}.inputs: node %{place + 5} does not exist" in str(refused(graph))


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_needs_its_attributes(kind: str) -> None:
    graph, node, place = changed(kind)
    for field in attribute_fields(kinds()[kind]):
        wrong = copy.deepcopy(graph)
        attributes = wrong["nodes"][-1]["op"][kind]
        value = attributes.pop(field.path)
        assert f"nodes[{place}].{kind}: object missing required field `{field.path}`" in str(refused(wrong))
        attributes[field.path] = 7 if isinstance(value, str) else "seven"
        assert f"nodes[{place}].{kind}: expected `" in str(refused(wrong))
        assert f"`$.{field.path}`" in str(refused(wrong))
    if isinstance(node["op"], str):
        node["op"] = {kind: {"extra": 1}}
    else:
        node["op"][kind]["extra"] = 1
    assert f"nodes[{place}].{kind}: object contains unknown field `extra`" in str(refused(graph))


FREE = {"Parameter", "Input", "Nop", "GlobalAvgPoolGrad"}
"""Kinds whose declared shape nothing contradicts."""


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_is_held_to_the_shape_it_makes(kind: str) -> None:
    graph, node, place = changed(kind)
    node["ty"]["shape"] = [997]
    if kind in FREE:
        assert Graph.from_json(json.dumps(graph)).nodes()[-1].ty.shape == (997,)
        return
    field = {"Constant": "data"}.get(kind, "out")
    assert f"nodes[{place}].{kind}.{field}: " in str(refused(graph))
    assert "expected" in str(refused(graph))


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_is_held_to_the_dtypes_of_its_inputs(kind: str) -> None:
    graph, node, _ = changed(kind)
    named = [f for f in fields(kinds()[kind]) if f.is_input and f.role is not Role.IN_LIST]
    for field, id in zip(named, node["inputs"], strict=False):
        wrong = copy.deepcopy(graph)
        wanted = "U32" if has_mark(field, Mark.INDEX) else "F32"
        read = wrong["nodes"][id]
        read["ty"]["dtype"] = "F32" if wanted == "U32" else "U32"
        if not read["inputs"] and "Constant" not in read["op"]:
            assert f"expected {wanted}, got" in str(refused(wrong))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g["nodes"][2].update(id=7), "nodes[2].id: expected 2, the node's place, got 7"),
        (lambda g: g["nodes"][3].update(op="Relux"), "nodes[3].op: unknown operation 'Relux'"),
        (lambda g: g["nodes"][3].update(op={"Relu": {}, "Neg": {}}), "nodes[3].op: expected `object` of length <= 1"),
        (lambda g: g["nodes"][3].update(op=3), "nodes[3].op: expected `str | object`, got `int`"),
        (lambda g: g["nodes"][2].update(op="RmsNorm"), "nodes[2].RmsNorm: object missing required field `eps`"),
        (lambda g: g["nodes"][3].update(inputs=[-1]), "nodes[3].inputs[0]: expected `int` >= 0"),
        (lambda g: g["nodes"][3].update(inputs=[9]), "nodes[3].Relu.inputs: node %9 does not exist; the graph has 4"),
        (lambda g: g["nodes"][3]["ty"].update(dtype="F16"), "nodes[3].ty.dtype: invalid enum value 'F16'"),
        (lambda g: g["nodes"][3]["ty"].update(shape=[2, -3]), "nodes[3].ty.shape[1]: expected `int` >= 0"),
        (
            lambda g: g["nodes"][3]["ty"].update(shape=[2**63]),
            "nodes[3].ty.shape[0]: expected `int` <= 9223372036854775807",
        ),
        (lambda g: g["nodes"][3].pop("ty"), "nodes[3]: object missing required field `ty`"),
        (lambda g: g["nodes"][3].update(color="red"), "nodes[3]: object contains unknown field `color`"),
        (lambda g: g["nodes"].append(7), "nodes[4]: expected `object`, got `int`"),
        (lambda g: g.update(outputs=[4]), "outputs[0]: node %4 does not exist; the graph has 4 nodes"),
        (lambda g: g.update(nodes={}), "nodes: expected `array`, got `object`"),
        (lambda g: g.pop("outputs"), "graph: object missing required field `outputs`"),
        (lambda g: g["derived_params"][0].update(rows=-1), "derived_params[0].rows: expected `int` >= 0"),
        (
            lambda g: g["derived_params"][0]["sources"].append(["a"]),
            "derived_params[0].sources[2]: expected `array` of",
        ),
    ],
)
def test_a_file_that_is_no_graph_is_refused_with_its_place(change: Any, message: str) -> None:
    graph = json.loads(MATMUL)
    change(graph)
    assert message in str(refused(graph))


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no JSON"), ("[", "no JSON"), ("3", "graph: expected `object`, got `int`"), ("[" * 10000, "no JSON")],
    ids=["empty", "truncated", "number", "deep"],
)
def test_a_text_that_is_no_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(WireError, match=message):
        Graph.from_json(text)


def test_bytes_that_are_no_msgpack_are_refused() -> None:
    data = small().to_msgpack()
    for length in range(len(data)):
        with pytest.raises(WireError):
            Graph.from_msgpack(data[:length])
    with pytest.raises(WireError, match="no msgpack"):
        Graph.from_msgpack(data + b"\0")
    with pytest.raises(WireError, match="graph: expected `object`, got `array`"):
        Graph.from_msgpack(msgspec.msgpack.encode([1, 2]))


@pytest.mark.parametrize("kind", kinds())
def test_damaged_files_are_refused_or_hold_a_graph_that_can_be_used(kind: str) -> None:
    """Nothing but an `IrError` comes out of reading one, or of what is done with it then."""
    rng, data, text = Random(kind), every_kind()[kind].to_msgpack(), str(every_kind()[kind])
    for _ in range(40):
        at, line = rng.randrange(len(data)), rng.randrange(len(text))
        byte, char = bytes([rng.randrange(256)]), rng.choice('0 9%{}"[](),:.xé\\')
        use(lambda damaged=data[:at] + byte + data[at + 1 :]: Graph.from_msgpack(damaged))
        use(lambda damaged=text[:line] + char + text[line + 1 :]: Graph.parse(damaged))


def use(read: Callable[[], Graph]) -> None:
    try:
        graph = read()
    except IrError:
        return
    assert Graph.from_msgpack(graph.to_msgpack()) == graph
    for step in (program, differentiate, optimize, Graph.toposort):
        with suppress(IrError):
            step(graph)


def test_a_gradient_of_attention_may_come_before_its_forward_node_and_must_name_one() -> None:
    graph, node, place = changed("MultiHeadAttnGradK")
    node["op"]["MultiHeadAttnGradK"]["fwd_node"] = 0
    expected = f"nodes[{place}].MultiHeadAttnGradK.fwd_node: expected a node with an attention, got %0 (Input)"
    assert expected in str(refused(graph))
    node["op"]["MultiHeadAttnGradK"]["fwd_node"] = place
    assert f"nodes[{place}].MultiHeadAttnGradK.fwd_node: expected a node with an attention" in str(refused(graph))
