"""Gradients as nodes: which, in which order, and where there are none. What they compute: `test_gradients`."""

import pytest

from ir.errors import ShapeError, StreamError, UnsupportedOp
from ir.meganeura import Graph, TensorType, differentiate
from ir.meganeura.ops import GroupNormSilu, Parameter, SiluGrad
from tests.meganeura_ir.rust_graphs import names, rust_graph

DIFFERENTIATED = "-differentiated"


def product_loss() -> Graph:
    g = Graph()
    g.set_outputs([g.mean_all(g.matmul(g.input("x", [4, 3]), g.parameter("w", [3, 2])))])
    return g


def mlp() -> Graph:
    g = Graph()
    x, w1, b1 = g.input("x", [4, 784]), g.parameter("w1", [784, 128]), g.parameter("b1", [128])
    h = g.relu(g.bias_add(g.matmul(x, w1), b1))
    w2 = g.parameter("w2", [128, 10])
    logits = g.matmul(h, w2)
    g.set_outputs([g.cross_entropy_loss(logits, g.input("labels", [4, 10]))])
    return g


def test_counts_and_outputs_of_meganeura() -> None:
    made = differentiate(product_loss(), compat="0.2")
    assert (len(made.nodes()), made.outputs()) == (8, (3, 7))
    made = differentiate(mlp(), compat="0.2")
    assert (len(mlp().nodes()), len(made.nodes()), made.outputs()) == (10, 24, (9, 23, 21, 17))


@pytest.mark.parametrize("name", names(DIFFERENTIATED))
def test_every_node_is_the_one_that_the_crate_makes(name: str) -> None:
    assert differentiate(rust_graph(name.removesuffix(DIFFERENTIATED)), compat="0.2") == rust_graph(name)


@pytest.mark.parametrize(
    ("name", "forward", "backward", "outputs"),
    [
        ("smollm2-135m-loss", 728, 1640, 273),
        ("sd-unet-tiny-loss", 124, 269, 54),
        ("smolvla-small-test-loss", 70, 145, None),
    ],
)
def test_counts_of_models(name: str, forward: int, backward: int, outputs: int | None) -> None:
    made = differentiate(rust_graph(name), compat="0.2")
    assert (len(rust_graph(name).nodes()), len(made.nodes())) == (forward, backward)
    assert outputs is None or len(made.outputs()) == outputs


def test_forward_nodes_keep_their_ids() -> None:
    for compat in (None, "0.2"):
        made = differentiate(mlp(), compat=compat)
        assert made.ops()[:10] == mlp().ops()


def test_gradients_come_in_the_order_of_the_parameters_with_their_types() -> None:
    made = differentiate(mlp())
    loss, *grads = made.outputs()
    parameters = [n for n in made.nodes() if isinstance(n.op, Parameter)]
    assert loss == 9
    assert [made.ty(grad) for grad in grads] == [n.ty for n in parameters]


def test_every_output_stays_beside_the_gradients_and_meganeura_drops_them() -> None:
    g = product_loss()
    g.set_outputs([3, 2])
    assert differentiate(g).outputs()[:2] == (3, 2)
    assert len(differentiate(g).outputs()) == 3
    assert len(differentiate(g, compat="0.2").outputs()) == 2


def test_an_unused_parameter_gets_zeros_of_its_shape_or_of_one_element_in_meganeura() -> None:
    g = product_loss()
    g.parameter("unused", [5, 7])
    assert differentiate(g).ty(differentiate(g).outputs()[2]).shape == (5, 7)
    made = differentiate(g, compat="0.2")
    assert str(made.node(made.outputs()[2]).ty) == "F32<[1]>"
    assert "Constant { data: [0.0] }" in str(made)


def test_a_parameter_that_is_used_twice_gets_a_sum() -> None:
    g = Graph()
    w = g.parameter("w", [8, 4])
    products = [g.matmul(g.input(name, [4, 8]), w) for name in ("x1", "x2")]
    g.set_outputs([g.mean_all(g.add(*products))])
    for compat in (None, "0.2"):
        made = differentiate(g, compat=compat)
        assert made.node(made.outputs()[1]).op.kind == "Add"
        assert made.ty(made.outputs()[1]).shape == (8, 4)


def test_inputs_get_no_output() -> None:
    assert len(differentiate(product_loss()).outputs()) == 2


def test_derived_parameters_are_kept() -> None:
    g = rust_graph("smollm2-head64-loss-training")
    assert len(g.derived_params) == 2
    assert differentiate(g).derived_params == g.derived_params


def test_nodes_that_read_larger_ids_are_differentiated_in_the_order_they_run() -> None:
    g = Graph()
    w = g.parameter("w", [2, 2])
    loss = g.sum_all(w)
    late = g.relu(w)
    g.replace_node(loss, g.op(loss), [late])
    g.set_outputs([loss])
    made = differentiate(g)
    assert made.node(made.outputs()[1]).op.kind == "Mul", "through relu"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("cache_write", "CacheWrite"),
        ("cached_attention", "CachedAttention { num_heads: 2, num_kv_heads: 2, head_dim: 2 }"),
    ],
)
def test_a_kind_without_a_gradient_is_refused(kind: str, text: str) -> None:
    g = Graph()
    row, cache, pos = g.parameter("row", [1, 4]), g.parameter("cache", [3, 4]), g.input_u32("pos", [1])
    made = (
        g.cache_write(row, cache, pos) if kind == "cache_write" else g.cached_attention(row, cache, cache, pos, 2, 2, 2)
    )
    g.set_outputs([g.sum_all(made)])
    for compat in (None, "0.2"):
        with pytest.raises(UnsupportedOp, match="autodiff not supported for") as refused:
            differentiate(g, compat=compat)
        assert str(refused.value) == (
            f"autodiff not supported for {text} — this op cannot appear in training graphs. "
            "Use the training-compatible variant instead."
        )


def test_meganeura_refuses_what_has_a_gradient_all_the_same() -> None:
    g = Graph()
    x, w, b = g.parameter("x", [8]), g.parameter("w", [2]), g.parameter("b", [2])
    groups = {"num_groups": 1, "eps": 1e-5, "channels": 2, "spatial": 4}
    g.set_outputs([g.sum_all(g.add_raw_node(GroupNormSilu, [x, w, b], TensorType.f32([8]), **groups))])
    assert len(differentiate(g).outputs()) == 4
    with pytest.raises(UnsupportedOp, match=r"GroupNormSilu \{ num_groups: 1, eps: 1e-5, channels: 2, spatial: 4 \}"):
        differentiate(g, compat="0.2")
    g = Graph()
    q = g.parameter("q", [3, 4])
    g.set_outputs([g.sum_all(g.cross_attention(q, q, q, 2, 2, 2))])
    assert len(differentiate(g).outputs()) == 2
    with pytest.raises(UnsupportedOp, match="CrossAttention"):
        differentiate(g, compat="0.2")


def test_a_gradient_kind_in_the_forward_graph_is_refused_and_ends_the_flow_in_meganeura() -> None:
    g = Graph()
    x = g.parameter("x", [4])
    g.set_outputs([g.sum_all(g.append(SiluGrad, [x, x]))])
    with pytest.raises(UnsupportedOp, match=r"SiluGrad: a kind that is a gradient .* jax.grad"):
        differentiate(g)
    made = differentiate(g, compat="0.2")
    assert made.ty(made.outputs()[1]).shape == (1,)


def test_the_mean_of_nothing_has_a_gradient_of_nothing() -> None:
    g = Graph()
    g.set_outputs([g.mean_all(g.parameter("x", [0, 3]))])
    for compat in (None, "0.2"):
        made = differentiate(g, compat=compat)
        assert made.ty(made.outputs()[1]).shape == (0, 3)


def test_a_loss_is_one_element_of_a_graph_with_outputs() -> None:
    g = Graph()
    x = g.parameter("x", [4])
    with pytest.raises(StreamError, match="no outputs"):
        differentiate(g)
    g.set_outputs([x])
    with pytest.raises(ShapeError, match=r"node %0, is F32<\[4\]>; expected one element"):
        differentiate(g)
