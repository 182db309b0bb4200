"""What Meganeura 0.2 does otherwise in certain graphs or on certain data: both sides, and which one is right."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from ir.errors import IrError
from ir.meganeura import Graph, differentiate
from ir.meganeura.ops import CachedAttention, CacheWrite, GroupNormSilu
from ir.meganeura.types import NodeId, TensorType
from tests.meganeura import graphs
from tests.meganeura.compare import Case, assert_same, assert_same_by_name, crate, difference, ours
from tests.meganeura.making import Maker
from tests.meganeura.operations import Heads
from tests.meganeura.referee import INFERENCE, TRAINING, Referee, RefereeError, Sgd, Step, Values
from tests.meganeura_ir.rust_graphs import rust_graph

SEED: Final = 11
DEVIATES: Final = 1e-2


def one_step(graph: Graph, outputs: Sequence[NodeId], parameters: Values, inputs: Values | None = None) -> Case:
    graph.set_outputs(outputs)
    return Case(graph, parameters, [Step(inputs or {})])


def gradients(referee: Referee, case: Case) -> tuple[Values, Values, Values]:
    """Those of the crate, of ours like the crate, and of ours as meant."""
    (theirs,) = crate(referee, case, passes=["Differentiate"])
    (same,) = ours(case._replace(graph=differentiate(case.graph, compat="0.2")), gradients="given")
    (meant,) = ours(case, compat=None, gradients="jax")
    return theirs.gradients, same.gradients, meant.gradients


def test_abs_at_zero(referee: Referee) -> None:
    g = Graph()
    loss = g.sum_all(g.abs(g.parameter("p", [3])))
    theirs, same, meant = gradients(referee, one_step(g, [loss], {"p": np.float32([0, 2, -2])}))
    assert theirs["p"].tolist() == same["p"].tolist() == [-1, 1, -1]
    assert meant["p"].tolist() == [0, 1, -1]


def test_relu_of_nan(referee: Referee) -> None:
    """WGSL leaves it to the driver what max and clamp make of NaN; this one drops it."""
    g = Graph()
    p = g.parameter("p", [2])
    nan = {"p": np.float32([np.nan, 0.5])}
    case = one_step(g, [g.relu(p), g.bce_loss(p, g.input("labels", [2]))], nan, {"labels": np.float32([0, 1])})
    (theirs,), (meant,) = crate(referee, case), ours(case)
    assert theirs.outputs[0].tolist() == [0, 0.5]
    assert np.isfinite(theirs.outputs[1]).all()
    assert np.isnan(meant.outputs[0]).tolist() == [True, False]
    assert np.isnan(meant.outputs[1]).all()


def test_softmax_of_nothing(referee: Referee) -> None:
    """The kernel guards against a sum of 0, but -inf minus the maximum of -inf is NaN before that."""
    g = Graph()
    rows = np.float32([[-np.inf, -np.inf], [-np.inf, 0]])
    case = one_step(g, [g.softmax(g.parameter("p", [2, 2]))], {"p": rows})
    (theirs,), (meant,) = crate(referee, case), ours(case)
    assert np.isnan(theirs.outputs[0]).tolist() == [True, True, False, False]
    assert meant.outputs[0].tolist() == [0, 0, 0, 1]


def test_bce_at_the_ends(referee: Referee) -> None:
    g = Graph()
    loss = g.bce_loss(g.parameter("p", [4]), g.input("labels", [4]))
    case = one_step(g, [loss], {"p": np.float32([0, 1, 0.5, 0.5])}, {"labels": np.float32([0, 1, 1, 0])})
    theirs, same, meant = gradients(referee, case)
    for like in (theirs, same):
        assert np.isnan(like["p"][:2]).all()
        assert like["p"][2:].tolist() == [-0.5, 0.5]
    assert meant["p"].tolist() == [0, 0, -0.5, 0.5]


def test_labels_that_do_not_sum_to_1(referee: Referee) -> None:
    g = Graph()
    loss = g.cross_entropy_loss(g.parameter("p", [2, 3]), g.input("labels", [2, 3]))
    logits, labels = np.float32([[1, 2, 3], [0, 0, 0]]), np.float32([[2, 0.2, -1.5], [0, 0, 1]])
    theirs, same, meant = gradients(referee, one_step(g, [loss], {"p": logits}, {"labels": labels}))
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert_same([theirs["p"], same["p"]], [(softmax - labels).ravel() / 2] * 2)
    assert_same([meant["p"]], [(softmax * labels.sum(-1, keepdims=True) - labels).ravel() / 2])


def rotated(offset: int | None) -> Graph:
    """A loss of a rotation from a fixed offset, or from an input `at`, on."""
    g = Graph()
    x, weights = g.parameter("p", [3, 8]), g.input("weights", [3, 8])
    at = g.input_u32("at", [1])
    made = g.rope_dynamic_offset(x, 100.0, at, 4) if offset is None else g.rope_with_offset(x, 100.0, offset, 4)
    g.set_outputs([g.sum_all(g.mul(made, weights))])
    return g


def test_dynamic_offset_gradient(referee: Referee) -> None:
    """The gradient rotates back from offset 0; it should from that of the input."""
    weights = np.linspace(-1, 1, 24, dtype=np.float32)
    step = Step({"weights": weights, "at": np.uint32([3])})
    theirs, same, meant = gradients(referee, Case(rotated(None), {}, [step]))
    from_0, from_3 = (gradients(referee, Case(rotated(offset), {}, [step]))[0] for offset in (0, 3))
    assert_same([theirs["p"], same["p"]], [from_0["p"]] * 2)
    assert_same([meant["p"]], [from_3["p"]])
    assert difference(meant["p"], theirs["p"]) > DEVIATES


def test_refused_cross_attention_has_the_gradient_of_multi_head_attn(referee: Referee) -> None:
    m = Maker([SEED, 1])
    q, k, v = m.tensor(3, 128), m.tensor(5, 64), m.tensor(5, 64)
    weights = m.input(3, 128)
    crossed, other = m.graph, m.graph.copy()
    crossed.set_outputs([crossed.sum_all(crossed.mul(crossed.cross_attention(q, k, v, 2, 1, 64), weights))])
    other.set_outputs([other.sum_all(other.mul(other.multi_head_attn(q, k, v, 2, 1, 64, is_cross=True), weights))])
    with pytest.raises(IrError, match="CrossAttention"):
        differentiate(crossed, compat="0.2")
    case = Case(other, m.parameters, [Step(m.inputs)])
    (theirs,) = crate(referee, case, passes=["Differentiate"])
    for kind in ("jax", "graph"):
        (meant,) = ours(case._replace(graph=crossed), compat=None, gradients=kind)
        assert_same_by_name(meant.gradients, theirs.gradients)


def test_refused_group_norm_silu_has_the_gradient_of_its_parts(referee: Referee) -> None:
    m = Maker([SEED, 2])
    operands, sizes = [m.tensor(2 * 6 * 11), m.tensor(6), m.tensor(6)], {"channels": 6, "spatial": 11}
    weights, ty = m.input(2 * 6 * 11), TensorType.f32([2 * 6 * 11])
    fused, parts = m.graph, m.graph.copy()
    whole = fused.add_raw_node(GroupNormSilu, operands, ty, num_groups=2, eps=1e-5, **sizes)
    fused.set_outputs([fused.sum_all(fused.mul(whole, weights))])
    with pytest.raises(IrError, match="GroupNormSilu"):
        differentiate(fused, compat="0.2")
    silu = parts.silu(parts.group_norm(*operands, 2, 6, 11, 2, 1e-5))
    parts.set_outputs([parts.sum_all(parts.mul(silu, weights))])
    case = Case(parts, m.parameters, [Step(m.inputs)])
    (theirs,) = crate(referee, case, passes=["Differentiate"])
    (meant,) = ours(case._replace(graph=fused), compat=None, gradients="jax")
    assert_same_by_name(meant.gradients, theirs.gradients, 2e-5)


def test_sum_rows_of_a_row(referee: Referee) -> None:
    """The crate broadcasts the gradient of column sums by `bias_add`, which refuses [1, columns]."""
    m = Maker([SEED, 3])
    x, weights = m.tensor(5, 3), m.input(1, 3)
    m.graph.set_outputs([m.graph.sum_all(m.graph.mul(m.graph.sum_rows(x, TensorType.f32([1, 3])), weights))])
    case = Case(m.graph, m.parameters, [Step(m.inputs)])
    with pytest.raises(RefereeError, match="bias must be 1D"):
        referee.passes(m.graph.to_msgpack(), ["Differentiate"])
    (meant,) = ours(case, compat=None, gradients="jax")
    assert meant.gradients["p0"].reshape(5, 3).tolist() == np.tile(m.inputs["x0"], (5, 1)).tolist()


@pytest.mark.parametrize(("kernel", "padding"), [(3, 0), (3, 2), (2, 1)])
def test_convolution_gradient_padding(referee: Referee, kernel: int, padding: int) -> None:
    """With stride 1 the crate pads by kernel - 1 - padding, which is the padding itself at half the kernel only."""
    m = Maker([SEED, 4])
    size = 7 + 2 * padding - kernel + 1
    grad_out, weights = m.tensor(size * size), m.tensor(kernel * kernel)
    made = m.graph.conv2d_grad_input(grad_out, weights, 1, 1, 7, 7, 1, kernel, kernel, 1, padding, padding)
    case = one_step(m.graph, [made], m.parameters)
    (theirs,), (meant,) = crate(referee, case), ours(case, compat=None)
    grads, taps = m.parameters["p0"].reshape(size, size), m.parameters["p1"].reshape(kernel, kernel)

    def formula(shift: int) -> np.ndarray:
        """out[i, j] = sum of grad_out[i + shift - a, j + shift - b] taps[a, b]."""
        padded = np.pad(grads, 9).astype(np.float64)
        windows = sliding_window_view(padded, (kernel, kernel))[..., ::-1, ::-1]
        first = 9 + shift - kernel + 1
        return (windows[first : first + 7, first : first + 7] * taps).sum((-1, -2)).ravel().astype(np.float32)

    assert_same(meant.outputs, [formula(padding)])
    assert_same(theirs.outputs, [formula(kernel - 1 - padding)])
    assert difference(meant.outputs[0], theirs.outputs[0]) > DEVIATES


def keys_last(graph: Graph) -> Graph:
    """The same graph with each key written to its cache after the attention that should see it."""
    made, moved, number = Graph(), {}, {}
    attentions = [op for op in graph.ops() if isinstance(op, CachedAttention)]
    keys = {op.k_cache.id for op in attentions}
    for node in graph.nodes():
        if isinstance(node.op, CacheWrite) and node.op.cache.id in keys:
            moved[node.op.cache.id] = node
            continue
        number[node.id] = made.add_raw_node(node.op, [number[n] for n in node.inputs], node.ty)
        if isinstance(node.op, CachedAttention):
            write = moved.pop(node.op.k_cache.id)
            made.add_raw_node(write.op, [number[n] for n in write.inputs], write.ty)
    assert not moved
    made.set_outputs([number[n] for n in graph.outputs()])
    return made


def test_decoding_order(referee: Referee) -> None:
    """A token attends to its own value with the key that its row of the cache held before."""
    graph = rust_graph("smollm2-head64-decode")
    parameters, _ = graphs.leaves(graph, seed=3)
    tokens = np.uint32([5, 17, 40, 3, 40])
    steps = [Step({"token_ids": tokens[n : n + 1], "kv_pos": np.uint32([n])}) for n in range(5)]
    case = Case(graph, parameters, steps)
    theirs, meant = crate(referee, case), ours(case, compat=None)
    late = ours(case._replace(graph=keys_last(graph)), compat=None)
    assert_same([state.outputs[0] for state in late], [state.outputs[0] for state in theirs])
    assert all(difference(meant[n].outputs[0], theirs[n].outputs[0]) > DEVIATES for n in range(1, 5))
    # Without a cache, the crate itself says that ours is right.
    whole = Case(rust_graph("smollm2-head64"), parameters, [Step({"token_ids": tokens})])
    (at_once,) = crate(referee, whole)
    assert_same([state.outputs[0] for state in meant], list(at_once.outputs[0].reshape(5, -1)))


def test_dispatch_order(referee: Referee) -> None:
    """A node that reads another twice, and all after it, runs in id order, in which joined products come last."""
    m = Maker([SEED, 5])
    g = m.graph
    x = m.input(3, 4)
    squared = g.mul(x, x)
    gated = g.swiglu(g.matmul(squared, m.tensor(4, 5)), g.matmul(squared, m.tensor(4, 5)))
    case = one_step(g, [gated], m.parameters, m.inputs)
    (theirs,) = crate(referee, case, passes=INFERENCE)
    (sorted_first,) = crate(referee, case, passes=[*INFERENCE, "Toposort"])
    (meant,) = ours(case, compat=None)
    assert_same(meant.outputs, sorted_first.outputs)
    assert difference(meant.outputs[0], theirs.outputs[0]) > DEVIATES
    optimized = Graph.from_msgpack(referee.passes(g.to_msgpack(), INFERENCE))
    assert_same(ours(case._replace(graph=optimized), compat=None)[0].outputs, meant.outputs)


def test_square_of_a_silu(referee: Referee) -> None:
    """The product of a silu with itself becomes a gated product of it with the silu, which is then deleted."""
    g = Graph()
    gate = g.silu(g.parameter("p", [2, 3]))
    x = np.linspace(-2, 3, 6, dtype=np.float32)
    case = one_step(g, [g.mean_all(g.mul(gate, gate))], {"p": x})
    with pytest.raises(RefereeError, match="index out of bounds"):
        crate(referee, case, passes=TRAINING)
    theirs, _, meant = gradients(referee, case)
    sigmoid = 1 / (1 + np.exp(-x))
    want = 2 * x * sigmoid * (sigmoid + x * sigmoid * (1 - sigmoid)) / 6
    assert_same([theirs["p"], meant["p"]], [want, want])


def test_overwritten_output(referee: Referee) -> None:
    """A product that only a relu reads is never written, though it is an output."""
    m = Maker([SEED, 6])
    product = m.graph.matmul(m.tensor(3, 4), m.tensor(4, 5))
    case = one_step(m.graph, [product, m.graph.relu(product)], m.parameters)
    (theirs,), (meant,) = crate(referee, case), ours(case, compat=None)
    assert theirs.outputs[0].tolist() == [0] * 15
    assert_same(meant.outputs, [m.parameters["p0"].dot(m.parameters["p1"]).ravel(), theirs.outputs[1]])


def test_stale_sources(referee: Referee) -> None:
    """Training moves the joined parameter alone; its parts keep their first values."""
    m = Maker([SEED, 7])
    g = m.graph
    x = m.input(3, 4)
    g.set_outputs([g.mean_all(g.swiglu(g.matmul(x, m.tensor(4, 5)), g.matmul(x, m.tensor(4, 5))))])
    case = Case(g, m.parameters, [Step(m.inputs, Sgd(0.5))])
    (theirs,) = crate(referee, case, passes=TRAINING)
    (meant,) = ours(case, compat=None, gradients="jax")
    for name, start in m.parameters.items():
        assert theirs.parameters[name].tolist() == start.ravel().tolist()
        assert difference(meant.parameters[name], start.ravel()) > DEVIATES
    joined = graphs.join(meant.parameters, graphs.joined_parameters(referee, g))
    assert_same_by_name(joined, theirs.parameters)


def test_rate_for_one_step(referee: Referee) -> None:
    """A learning rate is forgotten after a step; as meant, it stays."""
    g = Graph()
    g.set_outputs([g.sum_all(g.parameter("p", [2]))])
    case = Case(g, {}, [Step({}, Sgd(0.5)), Step({})])
    theirs, same = crate(referee, case, passes=TRAINING), ours(case, gradients="jax")
    meant = ours(case, compat=None, gradients="jax")
    assert [state.parameters["p"][0] for state in theirs] == [state.parameters["p"][0] for state in same] == [-0.5] * 2
    assert [state.parameters["p"][0] for state in meant] == [-0.5, -1]


def attended(heads: Heads) -> Case:
    m = Maker([SEED, 8])
    q, k, v = m.tensor(11, heads.width), m.tensor(11, heads.kv_width), m.tensor(11, heads.kv_width)
    return one_step(m.graph, [m.graph.causal_attention(q, k, v, *heads)], m.parameters)


def expected(case: Case, heads: Heads) -> np.ndarray:
    """Causal attention in NumPy, head by head."""
    q, k, v = (value.astype(np.float64).reshape(11, -1, heads.head_dim) for value in case.parameters.values())
    made = np.empty_like(q)
    for head in range(heads.num_heads):
        kv = head // (heads.num_heads // heads.num_kv_heads)
        scores = q[:, head] @ k[:, kv].T / np.sqrt(heads.head_dim)
        weights = np.exp(np.where(np.tri(11, dtype=bool), scores, -np.inf))
        made[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, kv]
    return made.ravel().astype(np.float32)


@pytest.mark.parametrize("head_dim", [32, 128])
def test_head_width(referee: Referee, head_dim: int) -> None:
    """The attention kernels have 64 threads, one per column of a head, whatever its width."""
    heads = Heads(2, 1, head_dim)
    case = attended(heads)
    (theirs,), (meant,) = crate(referee, case), ours(case, compat=None)
    assert_same(meant.outputs, [expected(case, heads)])
    assert difference(theirs.outputs[0], meant.outputs[0]) > DEVIATES


def test_missing_barriers(referee: Referee) -> None:
    """As published, kernels write shared memory that slower threads have not read; with barriers they are right."""
    heads = Heads(2, 1)
    case = attended(heads)
    with Referee(barriers=False) as published:
        (raced,) = crate(published, case)
    (theirs,), (meant,) = crate(referee, case), ours(case, compat=None)
    want = [expected(case, heads)]
    assert_same(theirs.outputs, want)
    assert_same(meant.outputs, want)
    assert difference(raced.outputs[0], want[0]) > DEVIATES
