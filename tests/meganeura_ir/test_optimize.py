"""The fusions are those of the crate, keep what a graph computes, and leave alone what others need."""

import jax.numpy as jnp
import numpy as np
import pytest

from ir.errors import StreamError
from ir.meganeura import (
    DerivedParam,
    Graph,
    NodeId,
    differentiate,
    fuse_group_norm_silu,
    optimize,
    optimize_with_report,
    program,
)
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.interpreter import run_graph
from jax_backend.ops import meganeura  # noqa: F401  registers the lowerings
from tests.meganeura_ir.rust_graphs import names, rust_graph

ADD, JOIN = "MatMul+Add→FusedMatMulAdd", "SwiGLU(MatMul,MatMul)→SwiGLUConcat(MatMul)"
INFERENCE, TRAINING = "-inference", "-training"


def kinds_of(g: Graph) -> list[str]:
    return [n.op.kind for n in g.nodes()]


@pytest.mark.parametrize("name", names(INFERENCE))
def test_the_passes_of_an_inference_session_give_the_crates_graph(name: str) -> None:
    made = optimize(rust_graph(name.removesuffix(INFERENCE)), compat="0.2")
    assert fuse_group_norm_silu(made, compat="0.2") == rust_graph(name)


@pytest.mark.parametrize("name", names(TRAINING))
def test_the_passes_of_a_training_session_give_the_crates_graph(name: str) -> None:
    forward = optimize(rust_graph(name.removesuffix(TRAINING)), compat="0.2").toposort(compat="0.2")
    assert optimize(differentiate(forward, compat="0.2"), compat="0.2") == rust_graph(name)


def test_the_fusions_of_a_model() -> None:
    graph = rust_graph("smollm2-135m-loss")
    made, report = optimize_with_report(graph)
    assert report.rules_fired == {ADD: 60, JOIN: 30}
    assert len(made.derived_params) == 30
    assert len(differentiate(made.toposort()).outputs()) == 303


def feed_forward() -> Graph:
    g = Graph()
    h = g.input("h", [50, 720])
    gate, up = (g.parameter(name, [720, 2048]) for name in ("gate", "up"))
    g.set_outputs([g.swiglu(g.matmul(h, gate), g.matmul(h, up))])
    return g


def test_two_products_of_one_input_get_a_joint_weight() -> None:
    made, report = optimize_with_report(feed_forward())
    assert kinds_of(made) == ["Input", "Parameter", "Parameter", "Nop", "Nop", "SwiGLUConcat", "Parameter", "MatMul"]
    assert made.derived_params == [DerivedParam("gate+up", (("gate", 2048), ("up", 2048)), 720)]
    assert made.ty(7).shape == (50, 4096)
    assert made.outputs() == (5,)
    assert report.fusions_applied == ((JOIN, 5),)
    assert str(report).splitlines()[:4] == [
        "=== Optimization Report ===",
        "Rules fired:",
        f"  {JOIN}  x1",
        "Graph: 6 nodes -> 6 active nodes (0 fused away)",
    ]


def test_a_graph_without_a_pattern_stays_and_the_report_says_so() -> None:
    g = Graph()
    g.set_outputs([g.neg(g.add(g.input("a", [2]), g.input("b", [2])))])
    made, report = optimize_with_report(g)
    assert made == g
    assert "Fusions" not in str(report)
    assert "Graph: 4 nodes -> 4 active nodes (0 fused away)" in str(report)


def test_the_original_graph_stays() -> None:
    g = feed_forward()
    optimize(g)
    assert g == feed_forward()


def decomposed() -> Graph:
    """A silu and a gated product as exporters of other frameworks write them, and products with summands."""
    g = Graph()
    x, w = g.input("x", [4, 4]), g.parameter("w", [4, 4])
    gated = g.mul(g.mul(x, g.sigmoid(x)), w)
    silu = g.mul(g.sigmoid(w), w)
    first = g.add(g.matmul(x, gated), silu)
    second = g.add(first, g.matmul_at(x, w))
    g.set_outputs([g.add(g.matmul_bt(second, w), x)])
    return g


def test_rules_fire_until_none_fits() -> None:
    made, report = optimize_with_report(decomposed())
    live = [kind for kind in kinds_of(made) if kind != "Nop"]
    expected = "Input Parameter SwiGLU Silu FusedMatMulAdd FusedMatMulATAdd FusedMatMulBTAdd"
    assert live == expected.split()
    assert report.rules_fired == {
        ADD: 1,
        "MatMulAT+Add→FusedMatMulATAdd": 1,
        "MatMulBT+Add→FusedMatMulBTAdd": 1,
        "Mul+Sigmoid→Silu": 2,
        "Silu+Mul→SwiGLU": 1,
    }
    assert report.nodes_after == 7


def test_a_fused_graph_computes_what_it_did() -> None:
    x, w = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    g = decomposed()
    np.testing.assert_allclose(run(optimize(g), x, w), run(g, x, w), rtol=1e-5, atol=1e-6)


def run(graph: Graph, *values: np.ndarray) -> np.ndarray:
    relative = program(graph).relative()
    return np.asarray(run_graph(relative, list(map(jnp.asarray, values)), (), (), None, CustomOpRegistry())[0])


def group_norm() -> tuple[Graph, NodeId]:
    g = Graph()
    x, w, b = g.input("x", [24]), g.parameter("w", [4]), g.parameter("b", [4])
    norm = g.group_norm(x, w, b, 2, 4, 3, 2, 1e-5)
    g.set_outputs([g.silu(norm)])
    return g, norm


def test_silu_of_a_group_norm_is_fused_for_inference_alone() -> None:
    g, _ = group_norm()
    assert optimize(g) == g
    made = fuse_group_norm_silu(g)
    assert kinds_of(made)[3:] == ["Nop", "GroupNormSilu"]
    assert made.node(4).inputs == (0, 1, 2)
    values = [np.random.default_rng(1).standard_normal(n).astype(np.float32) for n in (24, 4, 4)]
    np.testing.assert_allclose(run(made, *values), run(g, *values), rtol=1e-5, atol=1e-6)


def test_a_node_that_is_an_output_stays_and_meganeura_deletes_it() -> None:
    g, norm = group_norm()
    g.set_outputs([norm, 4])
    assert fuse_group_norm_silu(g) == g
    broken = fuse_group_norm_silu(g, compat="0.2")
    with pytest.raises(StreamError, match="node %3 is deleted"):
        program(broken)


def test_a_node_that_somebody_else_reads_stays() -> None:
    g = decomposed()
    extra = g.relu(g.matmul(0, 1))
    g.add(extra - 1, 0)
    g.set_outputs([*g.outputs(), extra])
    assert kinds_of(optimize(g))[extra - 1 :] == ["MatMul", "Relu", "Add"]


@pytest.mark.parametrize("compat", [None, "0.2"])
def test_a_sum_of_a_product_with_itself(compat: str | None) -> None:
    """The product cannot go, for it is the summand too; Meganeura deletes it and then reads it."""
    g = Graph()
    product = g.matmul(g.input("x", [2, 2]), g.parameter("w", [2, 2]))
    g.set_outputs([g.add(product, product)])
    if compat is None:
        assert optimize(g) == g
    else:
        with pytest.raises(StreamError, match="node %2 is deleted"):
            program(optimize(g, compat="0.2"))


def test_joint_weights_are_made_of_parameters_and_in_meganeura_of_anything() -> None:
    g = Graph()
    h, w = g.input("h", [2, 3]), g.parameter("w", [3, 5])
    g.set_outputs([g.swiglu(g.matmul(h, g.relu(w)), g.matmul(h, w))])
    assert optimize(g) == g
    made = optimize(g, compat="0.2")
    assert [p.name for p in made.derived_params] == ["w_gate+w"]


def test_weights_of_other_shapes_or_inputs_are_not_joined() -> None:
    g = Graph()
    h, other, w = g.input("h", [2, 3]), g.input("other", [2, 3]), g.parameter("w", [3, 5])
    g.set_outputs([g.swiglu(g.matmul(h, w), g.matmul(other, w))])
    assert optimize(g) == g
