"""The order of `toposort`, what it refuses, and the quirks that 0.2 has instead."""

import pytest

from ir.errors import StreamError
from ir.meganeura import DerivedParam, Graph, differentiate, program
from ir.meganeura.ops import Add, MatMul, Nop, Relu
from tests.meganeura_ir.rust_graphs import names, rust_graph


def kinds_of(g: Graph) -> list[str]:
    return [n.op.kind for n in g.nodes()]


def late_weight() -> Graph:
    """A node that reads two of larger ids, as a fusion leaves it, and a deleted one that nobody reads."""
    g = Graph()
    x = g.input("x", [2, 2])
    y = g.relu(x)
    dead = g.relu(y)
    w = g.parameter("w", [2, 2])
    wide = g.matmul(x, w)
    g.replace_node(y, Relu, [wide])
    g.replace_node(dead, Nop, [y])
    g.set_outputs([y])
    g.derived_params = [DerivedParam("w", (("a", 1), ("b", 1)), 2)]
    return g


def test_leaves_come_first_then_nodes_when_their_last_input_has_come() -> None:
    g = Graph()
    a = g.input("a", [2])
    late = g.relu(a)
    b = g.parameter("b", [2])
    both = g.add(late, b)
    twice = g.mul(b, b)
    g.set_outputs([both, twice])
    made = g.toposort()
    assert kinds_of(made) == ["Input", "Parameter", "Relu", "Mul", "Add"]
    assert [n.inputs for n in made.nodes()] == [(), (), (0,), (1, 1), (2, 1)]
    assert made.outputs() == (4, 3)


def test_ids_become_consecutive_and_deleted_nodes_go() -> None:
    made = late_weight().toposort()
    assert kinds_of(made) == ["Input", "Parameter", "MatMul", "Relu"]
    assert made.outputs() == (3,)
    assert made.derived_params == late_weight().derived_params
    assert made == late_weight().toposort(compat="0.2")


@pytest.mark.parametrize("name", names("-inference"))
def test_the_crates_graphs_of_sessions_keep_all_live_nodes(name: str) -> None:
    graph = rust_graph(name)
    made = graph.toposort()
    assert sorted(kinds_of(made)) == sorted(kind for kind in kinds_of(graph) if kind != "Nop")
    assert all(read < n.id for n in made.nodes() for read in n.inputs)
    before, after = program(graph), program(made)
    assert sorted(op.kind for op in before.ops) == sorted(op.kind for op in after.ops)


def reads_deleted(*, larger: bool) -> Graph:
    """An addition that reads a deleted node of a smaller or a larger id."""
    g = Graph()
    x = g.input("x", [2])
    first = g.relu(x)
    total = g.add(x, first)
    last = g.neg(x)
    if larger:
        g.replace_node(total, Add, [x, last])
    g.replace_node(last if larger else first, Nop, [x])
    g.set_outputs([total])
    return g


@pytest.mark.parametrize("larger", [False, True])
def test_a_node_that_reads_a_deleted_one_is_refused(larger: bool) -> None:
    deleted = 3 if larger else 1
    with pytest.raises(StreamError, match=rf"toposort: node %2 \(Add\) reads node %{deleted}, which is deleted"):
        reads_deleted(larger=larger).toposort()


def test_meganeura_drops_a_node_that_reads_a_deleted_one_of_a_larger_id() -> None:
    made = reads_deleted(larger=True).toposort(compat="0.2")
    assert kinds_of(made) == ["Input", "Relu"]
    assert made.outputs() == (), "and its output with it"


def test_meganeura_takes_an_input_away_which_only_a_kind_with_an_optional_one_survives() -> None:
    with pytest.raises(StreamError, match=r"Add.inputs: expected 2 \(a, b\), got 1"):
        reads_deleted(larger=False).toposort(compat="0.2")
    g = Graph()
    x, offset = g.input("x", [2, 4]), g.input_u32("offset", [1])
    g.set_outputs([g.rope_dynamic_offset(x, 1e4, offset, 4)])
    g.replace_node(offset, Nop, [])
    made = g.toposort(compat="0.2")
    assert [n.inputs for n in made.nodes()] == [(), (0,)]


def test_a_circle_is_refused_and_dropped_by_meganeura() -> None:
    g = Graph()
    x = g.input("x", [2, 2])
    y = g.relu(x)
    z = g.matmul(x, y)
    g.replace_node(y, Relu, [z])
    g.set_outputs([x])
    with pytest.raises(StreamError, match="toposort: nodes %1, %2 read each other in a circle"):
        g.toposort()
    assert kinds_of(g.toposort(compat="0.2")) == ["Input"]


def test_an_output_that_is_deleted_is_refused_and_dropped_by_meganeura() -> None:
    g = Graph()
    x = g.input("x", [2])
    y = g.relu(x)
    g.set_outputs([x, y])
    g.replace_node(y, Nop, [])
    with pytest.raises(StreamError, match=r"output 1 \(node %1, Nop\) was removed as Nop"):
        g.toposort()
    assert g.toposort(compat="0.2").outputs() == (0,)


def test_the_forward_node_of_an_attention_gradient_is_renumbered() -> None:
    g = Graph()
    q = g.parameter("q", [3, 4])
    dead = g.neg(q)
    g.set_outputs([g.sum_all(g.causal_attention(q, q, q, 2, 2, 2))])
    g.replace_node(dead, Nop, [])
    made = differentiate(g).toposort()
    forward = next(n.id for n in made.nodes() if n.op.kind == "CausalAttention")
    grads = [n.op for n in made.nodes() if n.op.kind.startswith("MultiHeadAttnGrad")]
    assert [op.fwd_node.id.value for op in grads] == [forward] * 3
    assert [op.window for op in grads] == [3] * 3


def test_meganeura_keeps_the_old_number_of_a_forward_node() -> None:
    g = Graph()
    q = g.parameter("q", [3, 4])
    dead = g.neg(q)
    g.set_outputs([g.sum_all(g.causal_attention(q, q, q, 2, 2, 2))])
    g.replace_node(dead, Nop, [])
    with pytest.raises(StreamError, match=r"fwd_node: expected a node with an attention, got %2 \(\w+\)"):
        differentiate(g).toposort(compat="0.2")


def test_a_product_with_two_late_operands() -> None:
    g = Graph()
    x = g.input("x", [2, 2])
    y = g.matmul(x, x)
    a, b = g.relu(x), g.neg(x)
    g.replace_node(y, MatMul, [b, a])
    g.set_outputs([y])
    made = g.toposort()
    assert kinds_of(made) == ["Input", "Relu", "Neg", "MatMul"]
    assert made.node(3).inputs == (2, 1)
