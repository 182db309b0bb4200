"""Programs give what Meganeura's buffers hold: random writes, aliases and reads of caches against a simulation."""

from random import Random
from typing import Any

import jax
import numpy as np
import pytest

from ir.meganeura import Graph, NodeId, optimize, program
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.interpreter import run_graph
from jax_backend.ops import meganeura  # noqa: F401  registers the lowerings
from tests.meganeura_ir.rust_graphs import rust_graph

GRAPHS = 40
SHAPES = ((6, 2), (3, 4), (1, 12))


def cached(seed: int) -> Graph:
    """Two caches; writes to them, to their aliases and to other nodes' buffers; reads before, between and after."""
    g, rng = Graph(), Random(seed)
    position = [g.input_u32(f"at{n}", [1]) for n in range(2)]
    rows = {width: g.input(f"row{width}", [1, width]) for _, width in SHAPES}
    whole = [g.parameter(f"cache{n}", rng.choice(SHAPES)) for n in range(2)] + [g.input("x", SHAPES[0])]
    for _ in range(rng.randrange(4, 14)):
        node = rng.choice(whole)
        rows_of, width = g.ty(node).shape
        match rng.randrange(6):
            case 0 | 1:
                made = g.cache_write(rows[width], node, position[rows_of == 1 or rng.random() < 0.5])
            case 2 | 3:
                made = g.reshape(node, rng.choice(SHAPES))
            case 4:
                made = g.neg(node)
            case _:
                other = [n for n in whole if g.ty(n) == g.ty(node)]
                made = g.add(node, rng.choice(other))
        whole.append(made)
    g.set_outputs(rng.choices(whole, k=4))
    return g


def leaf_values(graph: Graph, seed: int) -> dict[NodeId, np.ndarray]:
    """Positions 2 and 0, of which a cache of one row gets the second; random numbers."""
    rng = np.random.default_rng(seed)
    values: dict[NodeId, np.ndarray] = {0: np.uint32([2]), 1: np.uint32([0])}
    for n in graph.nodes()[2:]:
        if n.op.kind in ("Parameter", "Input"):
            values[n.id] = rng.standard_normal(n.ty.shape, np.float32)
    return values


def simulated(graph: Graph, values: dict[NodeId, np.ndarray]) -> dict[NodeId, np.ndarray]:
    """What every node's buffer holds once all have run in id order; aliases are views of one memory."""
    buffer = {id: value.copy() for id, value in values.items()}
    for n in graph.nodes():
        read = [buffer[id] for id in n.inputs]
        match n.op.kind:
            case "CacheWrite":
                new, cache, at = read
                cache[at[0]] = new[0]
                buffer[n.id] = cache
            case "Identity":
                buffer[n.id] = read[0].reshape(n.ty.shape)
            case "Neg":
                buffer[n.id] = -read[0]
            case "Add":
                buffer[n.id] = read[0] + read[1]
            case _:
                pass
    return buffer


def run(graph: Graph, values: dict[NodeId, Any]) -> tuple[Any, ...]:
    """Outputs, then states in the order of their leaves."""
    compiled = program(graph)
    leaves = [values[leaf.out.id.value] for leaf in compiled.leaves]
    return run_graph(compiled.relative(), leaves, (), (), None, CustomOpRegistry())


def results() -> list[tuple[Graph, dict[NodeId, np.ndarray], tuple[Any, ...]]]:
    """Every graph with its leaves and what its program gives: outputs, then states."""
    made = [(graph := cached(seed), leaf_values(graph, seed)) for seed in range(GRAPHS)]

    def everything(arguments: list[dict[NodeId, Any]]) -> list[tuple[Any, ...]]:
        return [run(graph, values) for (graph, _), values in zip(made, arguments, strict=True)]

    given = jax.jit(everything)([values for _, values in made])
    return [(graph, values, outputs) for (graph, values), outputs in zip(made, given, strict=True)]


def test_outputs_and_caches_are_what_the_buffers_hold_in_the_end() -> None:
    writes = 0
    for seed, (graph, values, given) in enumerate(results()):
        buffers, made = simulated(graph, values), program(graph)
        kept = [*graph.outputs(), *(leaf for leaf, _ in made.states)]
        assert len(given) == len(kept)
        for id, got in zip(kept, given, strict=True):
            np.testing.assert_array_equal(got, buffers[id], err_msg=f"seed {seed}, node %{id}\n{graph}")
        changed = {id for id, value in values.items() if not np.array_equal(buffers[id], value)}
        assert changed <= {leaf for leaf, _ in made.states}, f"seed {seed}"
        writes += len(made.states)
    assert writes > GRAPHS // 2


def ends(graph: Graph, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the buffers of outputs and of caches hold in the end; leaves by name."""
    named = {n.id: n.op.name for n in graph.nodes() if n.op.kind in ("Parameter", "Input")}
    buffers = simulated(graph, {id: values[name] for id, name in named.items()})
    caches = sorted((name, id) for id, name in named.items() if name.startswith("cache"))
    return [buffers[id] for id in (*graph.outputs(), *(id for _, id in caches))]


def test_sorting_keeps_the_order_of_reads_and_writes_which_that_of_meganeura_loses() -> None:
    lost = 0
    for seed in range(200):
        graph = cached(seed)
        values = {graph.op(id).name: value for id, value in leaf_values(graph, seed).items()}
        wanted, sorted_ = ends(graph, values), graph.toposort()
        assert sorted_.toposort() == sorted_
        for got, want in zip(ends(sorted_, values), wanted, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}\n{graph}\n{sorted_}")
        other = ends(graph.toposort(compat="0.2"), values)
        lost += not all(map(np.array_equal, other, wanted))
    assert lost > 20


def test_sorting_a_decoding_step_keeps_the_attention_behind_both_writes() -> None:
    graph = rust_graph("smollm2-head64-decode")
    kinds = [n.op.kind for n in graph.toposort().nodes() if n.op.kind in ("CacheWrite", "CachedAttention")]
    assert kinds == ["CacheWrite", "CacheWrite", "CachedAttention"] * 2


def test_a_fusion_does_not_move_a_read_across_a_write() -> None:
    g = Graph()
    row, cache, at = g.input("row", [1, 2]), g.parameter("cache", [2, 2]), g.input_u32("at", [1])
    product = g.matmul(row, cache)
    g.cache_write(row, cache, at)
    g.set_outputs([g.add(product, row)])
    assert optimize(g) == g
    assert optimize(g, compat="0.2") != g


def test_a_position_is_an_argument() -> None:
    g = Graph()
    row, cache, at = g.input("row", [1, 2]), g.parameter("cache", [3, 2]), g.input_u32("at", [1])
    g.cache_write(row, cache, at)
    step = jax.jit(lambda *leaves: run(g, dict(zip((row, cache, at), leaves, strict=True))))
    for position in range(3):
        (state,) = step(np.ones((1, 2), np.float32), np.zeros((3, 2), np.float32), np.uint32([position]))
        assert np.asarray(state).sum(1).tolist() == pytest.approx([2.0 * (n == position) for n in range(3)])
