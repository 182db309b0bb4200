"""Every gradient rule against jax.grad of the forward program: an operation in the middle, its result weighed."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ir.meganeura import Graph, NodeId, TensorType, differentiate, program
from ir.meganeura.autodiff import differentiable
from ir.meganeura.ops import (
    BiasAdd,
    CausalAttentionRoPE,
    FusedMatMulAdd,
    FusedMatMulATAdd,
    FusedMatMulBTAdd,
    FusedRmsNormMatMul,
    GroupNormSilu,
)
from ir.meganeura.types import DType
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.interpreter import run_graph
from jax_backend.ops import meganeura  # noqa: F401  registers the lowerings

HEADS = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 6}
F32 = TensorType.f32


class Case:
    """A graph whose leaves have values: parameters go through a product with an input before they are used."""

    def __init__(self, seed: int) -> None:
        self.graph = Graph()
        self.values: dict[NodeId, np.ndarray] = {}
        self._rng = np.random.default_rng(seed)

    def leaf(self, id: NodeId, values: Any) -> NodeId:
        self.values[id] = values
        return id

    def input(self, *shape: int, values: Any = None, low: float = 0.5, high: float = 1.5) -> NodeId:
        made = self._rng.uniform(low, high, shape).astype(np.float32) if values is None else np.asarray(values, "f4")
        return self.leaf(self.graph.input(f"x{len(self.values)}", shape), made)

    def indices(self, *values: int) -> NodeId:
        return self.leaf(self.graph.input_u32(f"i{len(self.values)}", [len(values)]), np.array(values, np.uint32))

    def part(self, *shape: int, values: Any = None) -> NodeId:
        """A tensor around 0 that a gradient is wanted for."""
        made = self._rng.standard_normal(shape).astype(np.float32) if values is None else np.asarray(values, "f4")
        parameter = self.leaf(self.graph.parameter(f"p{len(self.values)}", shape), made)
        return self.graph.mul(parameter, self.input(*shape))

    def positive(self, *shape: int) -> NodeId:
        return self.graph.sigmoid(self.part(*shape))

    def finish(self, result: NodeId) -> None:
        """Weigh the result and halve the loss, so that a gradient that comes in is neither 1 nor uniform."""
        g, shape = self.graph, self.graph.ty(result).shape
        loss = g.sum_all(g.mul(result, self.input(*shape, low=-1.0, high=1.0)))
        g.set_outputs([g.mul(loss, g.scalar(0.5))])


def conv_sizes(c: Case) -> NodeId:
    """2 images of 2 by 5 by 4; the stride leaves a rest in both axes."""
    return c.graph.conv2d_hw(c.part(80), c.part(3 * 2 * 3 * 2), 2, 2, 5, 4, 3, 3, 2, 2, 1, 0)


def dynamic_rope(c: Case) -> NodeId:
    return c.graph.rope_dynamic_offset(c.part(3, 12), 100.0, c.indices(5), 6)


def attention(method: str, *extra: Any, kv_rows: int = 5) -> Callable[[Case], NodeId]:
    def built(c: Case) -> NodeId:
        q, k, v = c.part(5, 24), c.part(kv_rows, 12), c.part(kv_rows, 12)
        return getattr(c.graph, method)(q, k, v, *HEADS.values(), *extra)

    return built


def rotating_attention(c: Case) -> NodeId:
    q, k, v = c.part(5, 24), c.part(5, 12), c.part(5, 12)
    return c.graph.append(CausalAttentionRoPE, [q, k, v], **HEADS, rope_theta=100.0)


def group_norm_silu(c: Case) -> NodeId:
    inputs = [c.part(2 * 4 * 3), c.part(4), c.part(4)]
    return c.graph.append(GroupNormSilu, inputs, num_groups=2, eps=1e-5, channels=4, spatial=3)


def flat_bias(c: Case) -> NodeId:
    return c.graph.append(BiasAdd, [c.part(2, 2, 3), c.part(2, 1)])


def pool(batch: int, channels: int, *sizes: int, values: Any = None) -> Callable[[Case], NodeId]:
    def built(c: Case) -> NodeId:
        count = batch * channels * sizes[0] * sizes[1]
        if values is None:
            return c.graph.max_pool_2d(c.part(count), batch, channels, *sizes)
        x = c.leaf(c.graph.parameter("p", [count]), np.asarray(values, np.float32))
        return c.graph.max_pool_2d(x, batch, channels, *sizes)

    return built


def bce_at_the_bounds(c: Case) -> NodeId:
    p = c.leaf(c.graph.parameter("p", [5]), np.array([0.0, 1.0, 0.25, -1.0, 2.0], np.float32))
    return c.graph.bce_loss(p, c.input(5, values=[0, 1, 1, 0.5, 1]))


def shared(c: Case) -> NodeId:
    """An operand that is read three times, once twice by one node."""
    x = c.part(2, 3)
    return c.graph.add(c.graph.mul(x, x), c.graph.tanh(x))


CASES: dict[str, Callable[[Case], NodeId]] = {
    "add": lambda c: c.graph.add(c.part(2, 3), c.part(2, 3)),
    "mul": lambda c: c.graph.mul(c.part(2, 3), c.part(2, 3)),
    "shared": shared,
    "bias": lambda c: c.graph.bias_add(c.part(4, 3), c.part(3)),
    "bias-row": lambda c: c.graph.broadcast_add(c.part(4, 3), c.part(1, 3)),
    "bias-flat": flat_bias,
    "relu": lambda c: c.graph.relu(c.part(2, 3)),
    "sigmoid": lambda c: c.graph.sigmoid(c.part(2, 3)),
    "tanh": lambda c: c.graph.tanh(c.part(2, 3)),
    "neg": lambda c: c.graph.neg(c.part(2, 3)),
    "abs": lambda c: c.graph.abs(c.part(2, 3, values=[[-2, 0, 3], [0, 1, -1]])),
    "log": lambda c: c.graph.log(c.positive(2, 3)),
    "recip": lambda c: c.graph.recip(c.positive(2, 3)),
    "silu": lambda c: c.graph.silu(c.part(2, 3)),
    "gelu": lambda c: c.graph.gelu(c.part(4, 7)),
    "swiglu": lambda c: c.graph.swiglu(c.part(2, 3), c.part(2, 3)),
    "swiglu-concat": lambda c: c.graph.swiglu_concat(c.part(2, 6)),
    "reshape": lambda c: c.graph.tanh(c.graph.reshape(c.part(2, 6), [3, 4])),
    "transpose": lambda c: c.graph.transpose(c.part(2, 3)),
    "matmul": lambda c: c.graph.matmul(c.part(2, 3), c.part(3, 5)),
    "matmul-at": lambda c: c.graph.matmul_at(c.part(3, 2), c.part(3, 5)),
    "matmul-bt": lambda c: c.graph.matmul_bt(c.part(2, 3), c.part(5, 3)),
    "fused": lambda c: c.graph.append(FusedMatMulAdd, [c.part(2, 3), c.part(3, 5), c.part(2, 5)]),
    "fused-at": lambda c: c.graph.append(FusedMatMulATAdd, [c.part(3, 2), c.part(3, 5), c.part(2, 5)]),
    "fused-bt": lambda c: c.graph.append(FusedMatMulBTAdd, [c.part(2, 3), c.part(5, 3), c.part(2, 5)]),
    "fused-norm": lambda c: c.graph.append(FusedRmsNormMatMul, [c.part(2, 3), c.part(3), c.part(3, 5)], eps=1e-3),
    "sum-all": lambda c: c.graph.sum_all(c.part(2, 3)),
    "mean-all": lambda c: c.graph.mean_all(c.part(2, 3)),
    "sum-rows": lambda c: c.graph.sum_rows(c.part(4, 3), F32([3])),
    "sum-rows-kept": lambda c: c.graph.sum_rows(c.part(4, 3), F32([1, 3])),
    "softmax": lambda c: c.graph.softmax(c.part(4, 3)),
    "log-softmax": lambda c: c.graph.log_softmax(c.part(4, 3)),
    "cross-entropy": lambda c: c.graph.cross_entropy_loss(c.part(4, 3), c.input(4, 3, low=-1.0, high=2.0)),
    "bce": lambda c: c.graph.bce_loss(c.positive(2, 3), c.input(2, 3, low=0.0, high=1.0)),
    "bce-bounds": bce_at_the_bounds,
    "mse": lambda c: c.graph.mse_loss(c.part(2, 3), c.part(2, 3)),
    "embedding": lambda c: c.graph.embedding(c.indices(2, 0, 2), c.part(4, 3)),
    "scatter": lambda c: c.graph.scatter_add(c.indices(2, 0, 2), c.part(3, 5), 4),
    "rope": lambda c: c.graph.rope_with_offset(c.part(3, 12), 100.0, 5, 6),
    "rope-dynamic": dynamic_rope,
    "rms-norm": lambda c: c.graph.rms_norm(c.part(4, 3), c.part(3), 1e-3),
    "layer-norm": lambda c: c.graph.layer_norm(c.part(4, 3), c.part(3), c.part(3), 1e-3),
    "group-norm": lambda c: c.graph.group_norm(c.part(24), c.part(4), c.part(4), 2, 4, 3, 2, 1e-3),
    "group-norm-silu": group_norm_silu,
    "causal": attention("causal_attention"),
    "causal-rope": rotating_attention,
    "window": attention("sliding_window_attention", 2),
    "full": attention("full_attention"),
    "cross": attention("cross_attention", kv_rows=3),
    "multi-head": attention("multi_head_attn", True, kv_rows=3),
    "conv": conv_sizes,
    "concat": lambda c: c.graph.concat(c.part(2 * 2 * 3), c.part(2 * 5 * 3), 2, 2, 5, 3),
    "split-a": lambda c: c.graph.split_a(c.part(2 * 7 * 3), 2, 2, 5, 3),
    "split-b": lambda c: c.graph.split_b(c.part(2 * 7 * 3), 2, 2, 5, 3),
    "upsample": lambda c: c.graph.upsample_2x(c.part(2 * 2 * 3 * 2), 2, 2, 3, 2),
    "average": lambda c: c.graph.global_avg_pool(c.part(2 * 3 * 5), 2, 3, 5),
    "max-pool": pool(2, 3, 5, 7, 3, 2, 2, 0),
    "max-pool-padded": pool(1, 2, 5, 5, 3, 3, 2, 1),
    "max-pool-negative-beside-padding": pool(1, 1, 2, 2, 2, 2, 1, 1, values=[-1, -2, -3, -4]),
    "max-pool-ties": pool(1, 1, 3, 3, 2, 2, 1, 0, values=[0, 0, 1, 0, 0, 1, 2, 2, 2]),
}


def function_of(graph: Graph) -> tuple[list[NodeId], Callable[[Sequence[Any]], tuple[Any, ...]]]:
    """The ids of the leaves of a graph's program, and its outputs as a function of their values."""
    made = program(graph)
    relative = made.relative()
    leaves = [leaf.out.id.value for leaf in made.leaves]
    return leaves, lambda values: run_graph(relative, values, (), (), None, CustomOpRegistry())


@cache
def results() -> dict[str, tuple[list[Any], list[Any]]]:
    """Of each case the gradients by its graph and by jax.grad; one compilation for all."""

    def everything(values: dict[str, dict[NodeId, Any]]) -> dict[str, tuple[list[Any], list[Any]]]:
        return {name: both(case.graph, values[name]) for name, case in cases.items()}

    def both(graph: Graph, values: dict[NodeId, Any]) -> tuple[list[Any], list[Any]]:
        parameters = [n.id for n in graph.nodes() if n.op.kind == "Parameter"]
        leaves, run = function_of(differentiate(graph))
        _, *by_graph = run([values[leaf] for leaf in leaves])
        leaves, run = function_of(graph)

        def loss(wanted: dict[NodeId, Any]) -> Any:
            return run([(values | wanted)[leaf] for leaf in leaves])[0][0]

        by_jax = jax.grad(loss)({id: values[id] for id in parameters})
        return by_graph, [by_jax[id] for id in parameters]

    cases: dict[str, Case] = {}
    for seed, (name, build) in enumerate(CASES.items()):
        cases[name] = Case(seed)
        cases[name].finish(build(cases[name]))
    return jax.jit(everything)({name: case.values for name, case in cases.items()})


@pytest.mark.xdist_group("meganeura-gradients")
@pytest.mark.parametrize("name", CASES)
def test_gradients_in_the_graph_are_those_of_jax(name: str) -> None:
    by_graph, by_jax = results()[name]
    assert len(by_graph) == len(by_jax) > 0
    for got, want in zip(by_graph, by_jax, strict=True):
        assert np.any(np.asarray(want)), "a gradient that is 0 everywhere shows nothing"
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_every_kind_with_a_gradient_has_a_case() -> None:
    seen: set[str] = set()
    for seed, build in enumerate(CASES.values()):
        case = Case(seed)
        case.finish(build(case))
        seen |= {n.op.kind for n in case.graph.nodes()}
    assert {kind.__name__ for kind in differentiable()} - seen == set()
    assert (len(differentiable()), len(differentiable("0.2"))) == (50, 44)


def test_a_max_pool_gives_its_gradient_to_the_first_maximum_alone() -> None:
    g = Graph()
    x = g.parameter("x", [4])
    g.set_outputs([g.sum_all(g.max_pool_2d(x, 1, 1, 2, 2, 2, 2, 1, 0))])
    _, run = function_of(differentiate(g))
    assert np.asarray(run([jnp.array([1.0, 3.0, 3.0, 3.0], jnp.float32)])[1]).tolist() == [0, 1, 0, 0]


def test_cross_entropy_by_hand() -> None:
    """The exact gradient, and that of Meganeura 0.2, which takes rows of labels to sum to 1."""
    g = Graph()
    logits = g.parameter("logits", [2, 3])
    g.set_outputs([g.cross_entropy_loss(logits, g.input("labels", [2, 3]))])
    values = [jnp.array(rows, jnp.float32) for rows in ([[1, 2, 3], [0, 0, 0]], [[2, 0.2, -1.5], [0, 0, 1]])]
    exact, release = (function_of(differentiate(g, compat=compat))[1](values)[1] for compat in (None, "0.2"))
    np.testing.assert_allclose(exact[0], [-0.968489, -0.014345, 0.982834], atol=2e-6)
    np.testing.assert_allclose(release[0], [-0.954985, 0.022364, 1.082620], atol=2e-6)


def test_at_0_the_slope_of_abs_is_0_here_and_negative_in_meganeura() -> None:
    g = Graph()
    g.set_outputs([g.sum_all(g.abs(g.parameter("x", [3])))])
    values = [jnp.array([0.0, -2.0, 3.0], jnp.float32)]
    exact, release = (function_of(differentiate(g, compat=compat))[1](values)[1] for compat in (None, "0.2"))
    assert np.asarray(exact).tolist() == [0, -1, 1]
    assert np.asarray(release).tolist() == [-1, -1, 1]


def test_gelu_by_hand() -> None:
    points = [-1, 0, 0.5, 1, 1.43, 2]
    g = Graph()
    g.set_outputs([g.sum_all(g.gelu(g.parameter("x", [6])))])
    values = [jnp.array(points, jnp.float32)]
    exact, release = (function_of(differentiate(g, compat=compat))[1](values)[1] for compat in (None, "0.2"))
    np.testing.assert_allclose(exact, [-0.082964, 0.5, 0.867370, 1.082964, 1.128966, 1.086099], atol=2e-6)
    np.testing.assert_allclose(release, [-0.067780, 0.5, 0.879222, 1.067780, 1.099786, 1.073815], atol=2e-6)


def test_meganeura_forgets_what_comes_in_and_we_do_not() -> None:
    g = Graph()
    w = g.parameter("w", [8, 4])
    mean = g.mean_all(g.matmul(g.input("x", [4, 8]), w))
    g.set_outputs([g.mul(mean, g.scalar(0.5))])
    values = [jnp.full((8, 4), 0.1, jnp.float32), jnp.ones((4, 8), jnp.float32)]
    halved, whole = (function_of(differentiate(g, compat=compat))[1](values) for compat in (None, "0.2"))
    assert float(halved[0][0]) == pytest.approx(0.4)
    np.testing.assert_allclose(halved[1], np.full((8, 4), 0.125), rtol=1e-6)
    np.testing.assert_allclose(whole[1], np.full((8, 4), 0.25), rtol=1e-6)


def test_a_convolution_by_hand() -> None:
    g = Graph()
    x, kernel = g.input("x", [16]), g.parameter("k", [9])
    g.set_outputs([g.sum_all(g.conv2d(x, kernel, 1, 1, 4, 4, 1, 3, 3, 1, 0))])
    _, run = function_of(differentiate(g))
    loss, grad = run([0.1 * jnp.arange(1, 17, dtype=jnp.float32), 0.05 * jnp.arange(1, 10, dtype=jnp.float32)])
    assert float(loss[0]) == pytest.approx(9.21)
    np.testing.assert_allclose(grad, [1.4, 1.8, 2.2, 3.0, 3.4, 3.8, 4.6, 5.0, 5.4], rtol=1e-5)


def test_a_token_input_takes_no_gradient() -> None:
    g = Graph()
    tokens, table = g.input_u32("tokens", [2]), g.parameter("table", [3, 2])
    g.set_outputs([g.sum_all(g.embedding(tokens, table))])
    made = differentiate(g)
    assert made.ty(tokens).dtype is DType.U32
    _, run = function_of(made)
    grad = run([jnp.array([1, 1], jnp.uint32), jnp.zeros((3, 2), jnp.float32)])[1]
    assert np.asarray(grad).tolist() == [[0, 0], [2, 2], [0, 0]]
