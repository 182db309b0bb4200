"""Graphs of Meganeura as programs: what goes in, what is left out, and what caches hold."""

from collections.abc import Mapping

import jax
import numpy as np
import pytest

from ir.errors import StreamError
from ir.meganeura import Graph, program
from ir.meganeura.ops import Nop, Relu
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.interpreter import run_graph

ROWS = 4
"""Rows of a cache."""


def run(graph: Graph, leaves: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The outputs, then the new values of caches."""
    made = program(graph)
    relative = made.relative()
    function = jax.jit(lambda given: run_graph(relative, given, (), (), None, CustomOpRegistry()))
    return tuple(np.asarray(x) for x in function([leaves[leaf.name] for leaf in made.leaves]))


def test_leaves_are_arguments_and_deleted_nodes_are_left_out() -> None:
    graph = Graph()
    unused = graph.parameter("unused", [7])
    x, w = graph.input("x", [2, 3]), graph.parameter("w", [3, 2])
    product = graph.matmul(x, w)
    deleted = graph.relu(product)
    graph.replace_node(deleted, Nop, [product])
    graph.set_outputs([graph.neg(product), w])
    assert [leaf.name for leaf in program(graph).leaves] == ["x", "w"]
    given = {"x": np.float32([[1, 2, 3], [4, 5, 6]]), "w": np.float32([[1, 0], [0, 1], [2, -2]])}
    negative, weights = run(graph, given)
    np.testing.assert_array_equal(negative, [[-7, 4], [-16, 7]])
    np.testing.assert_array_equal(weights, given["w"])
    graph.set_outputs([graph.add_raw_node(Relu, [deleted], graph.ty(product)), unused])
    with pytest.raises(StreamError, match="deleted"):
        program(graph)


def decoder() -> Graph:
    """One head of width 2 over a cache of four rows, whose rows are the inputs themselves."""
    graph = Graph()
    q, place = graph.input("q", [1, 2]), graph.input_u32("kv_pos", [1])
    keys, values = graph.parameter("k", [ROWS, 2]), graph.parameter("v", [ROWS, 2])
    graph.cache_write(graph.input("new_k", [1, 2]), keys, place)
    graph.cache_write(graph.input("new_v", [1, 2]), values, place)
    graph.set_outputs([graph.cached_attention(q, keys, values, place, 1, 1, 2)])
    return graph


def test_the_row_just_written_is_seen_and_the_cache_comes_out() -> None:
    graph = decoder()
    caches = {"k": np.zeros((ROWS, 2), np.float32), "v": np.zeros((ROWS, 2), np.float32)}
    rows = np.float32([[1, 2], [5, -7], [3, 3], [0, 1]])
    for place, row in enumerate(rows):
        leaves = {"q": np.zeros((1, 2), np.float32), "new_k": row[None], "new_v": row[None]}
        attended, caches["k"], caches["v"] = run(graph, {**leaves, **caches, "kv_pos": np.uint32([place])})
        # A query of zeros weighs every visible row alike.
        np.testing.assert_allclose(attended[0], rows[: place + 1].mean(0), rtol=1e-6)
    np.testing.assert_array_equal(caches["k"], rows)
    np.testing.assert_array_equal(caches["v"], rows)


def test_a_cache_written_through_an_alias_is_written() -> None:
    graph = Graph()
    cache, place = graph.parameter("cache", [6]), graph.input_u32("kv_pos", [1])
    rows = graph.reshape(cache, [3, 2])
    other = graph.reshape(cache, [2, 3])
    graph.cache_write(graph.input("row", [1, 2]), rows, place)
    graph.set_outputs([graph.neg(other), graph.neg(cache)])
    leaves = {"cache": np.arange(6, dtype=np.float32), "row": np.float32([[8, 9]]), "kv_pos": np.uint32([1])}
    viewed, flat, state = run(graph, leaves)
    np.testing.assert_array_equal(state, [0, 1, 8, 9, 4, 5])
    np.testing.assert_array_equal(flat, -state)
    np.testing.assert_array_equal(viewed, -state.reshape(2, 3))


def test_compat_leaves_out_the_logarithm_that_0_2_leaves_out() -> None:
    graph = Graph()
    graph.set_outputs([graph.log_softmax(graph.input("x", [1, 2]))])
    kinds = [[op.kind for op in program(graph, compat).ops] for compat in (None, "0.2")]
    assert kinds == [["LogSoftmax"], ["Softmax"]]
