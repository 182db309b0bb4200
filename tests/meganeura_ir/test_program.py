"""Live nodes, caches as state, and the kinds that Meganeura 0.2 runs instead."""

import pytest

import ir
from ir.errors import ShapeError, StreamError
from ir.meganeura import Graph, TensorType, program
from ir.meganeura.ops import CausalAttentionRoPE, Nop, Relu
from tests.meganeura_ir.rust_graphs import rust_graph


def kinds_of(ops: tuple[ir.Op, ...]) -> list[str]:
    return [op.kind for op in ops]


def reads(op: ir.Op) -> list[int]:
    return [t.id.value for t in op.inputs]


def test_only_what_the_outputs_need_is_kept() -> None:
    g = Graph()
    x, unused = g.input("x", [2, 3]), g.parameter("unused", [2, 3])
    g.add(x, unused)
    g.set_outputs([g.relu(x)])
    made = program(g)
    assert kinds_of(made.ops) == ["Relu"]
    assert [leaf.name for leaf in made.leaves] == ["x"]
    assert made.outputs == (3,)
    assert made.states == ()


def decode_step() -> Graph:
    """One decoding step: both caches are written, then read through their parameters."""
    g = Graph()
    q, k, v = (g.input(name, [1, 4]) for name in "qkv")
    pos = g.input_u32("kv_pos", [1])
    k_cache, v_cache = g.parameter("k_cache", [5, 4]), g.parameter("v_cache", [5, 4])
    g.cache_write(k, k_cache, pos)  # 6
    g.cache_write(v, v_cache, pos)  # 7
    g.set_outputs([g.cached_attention(q, k_cache, v_cache, pos, 2, 2, 2)])
    return g


def test_a_cache_write_is_live_and_seen_by_those_who_read_the_cache_later() -> None:
    made = program(decode_step())
    assert kinds_of(made.ops) == ["CacheWrite", "CacheWrite", "CachedAttention"]
    assert reads(made.ops[0]) == [1, 4, 3]
    assert reads(made.ops[2]) == [0, 6, 7, 3]
    assert made.states == ((4, 6), (5, 7))
    assert made.outputs == (8,)


def test_a_graph_of_cache_writes_alone_runs() -> None:
    g = decode_step()
    g.set_outputs([])
    made = program(g)
    assert kinds_of(made.ops) == ["CacheWrite", "CacheWrite"]
    assert made.outputs == ()


def test_a_read_before_the_write_gets_the_old_value_and_one_after_it_the_new() -> None:
    g = Graph()
    new, pos, cache = g.input("new", [1, 2]), g.input_u32("pos", [1]), g.parameter("cache", [3, 2])
    before = g.relu(cache)
    first = g.cache_write(new, cache, pos)
    between = g.relu(cache)
    second = g.cache_write(new, cache, pos)
    of_the_first = g.relu(first)
    g.set_outputs([before, between, of_the_first, cache])
    made = program(g)
    inputs = {op.outputs[0].id.value: reads(op) for op in made.ops}
    assert inputs[before] == [cache]
    assert inputs[between] == [first]
    assert inputs[second] == [new, first, pos]
    assert inputs[of_the_first] == [second], "the node of a write is the buffer itself"
    assert made.outputs == (before, between, of_the_first, second)
    assert made.states == ((cache, second),)


def test_an_alias_of_a_cache_sees_its_writes_and_writes_it() -> None:
    g = Graph()
    new, pos, cache = g.input("new", [1, 6]), g.input_u32("pos", [1]), g.parameter("cache", [3, 2])
    wide = g.reshape(cache, [1, 6])
    write = g.cache_write(new, wide, pos)
    of_cache, of_alias = g.relu(cache), g.relu(wide)
    g.set_outputs([of_cache, of_alias])
    made = program(g)
    narrow = [op for op in made.ops if op.kind == "Identity" and op.outputs[0].shape.dims == (3, 2)]
    assert [reads(op) for op in narrow] == [[write]] * 2, "one for the reader, one for the state"
    by_id = {op.outputs[0].id.value: op for op in made.ops}
    assert reads(by_id[of_cache]) == [narrow[0].outputs[0].id.value]
    assert reads(by_id[of_alias]) == [write]
    assert made.states == ((cache, narrow[1].outputs[0].id.value),)


def test_an_output_that_is_a_leaf_is_copied_so_that_an_operation_makes_it() -> None:
    g = Graph()
    x = g.input("x", [2])
    g.set_outputs([x, x])
    made = program(g)
    assert kinds_of(made.ops) == ["Identity", "Identity"]
    assert all(reads(op) == [x] for op in made.ops)


def test_nodes_whose_inputs_have_larger_ids_come_after_them() -> None:
    g = Graph()
    x = g.input("x", [2, 2])
    y = g.relu(x)
    late = g.parameter("late", [2, 2])
    wide = g.matmul(x, late)
    g.replace_node(y, Relu, [wide])
    g.set_outputs([y])
    assert [op.outputs[0].id.value for op in program(g).ops] == [wide, y]


def test_a_circle_is_refused() -> None:
    g = Graph()
    y = g.relu(g.input("x", [2]))
    z = g.relu(y)
    g.replace_node(y, Relu, [z])
    g.set_outputs([z])
    with pytest.raises(StreamError, match=r"node %1 \(Relu\) reads itself, by way of node %2"):
        program(g)


def test_a_deleted_node_that_somebody_reads_is_refused() -> None:
    g = Graph()
    y = g.relu(g.input("x", [2]))
    g.set_outputs([g.relu(y)])
    g.replace_node(y, Nop, [0])
    with pytest.raises(StreamError, match="node %1 is deleted"):
        program(g)


def test_a_raw_node_is_checked_when_it_is_live() -> None:
    g = Graph()
    y = g.add_raw_node(Relu, [g.input("x", [2])], TensorType.f32([3]))
    g.set_outputs([0])
    assert kinds_of(program(g).ops) == ["Identity"]
    g.set_outputs([y])
    with pytest.raises(ShapeError, match=r"node %1: Relu.out: expected 2 elements, as \[2\], got \[3\]"):
        program(g)


def test_a_graph_without_outputs_is_refused() -> None:
    g = Graph()
    g.input("x", [2])
    with pytest.raises(StreamError, match="no outputs"):
        program(g)


def test_compat_runs_what_meganeura_runs() -> None:
    g = Graph()
    x = g.input("x", [3, 4])
    heads = {"num_heads": 2, "num_kv_heads": 2, "head_dim": 2}
    turned = g.add_raw_node(CausalAttentionRoPE, [x, x, x], TensorType.f32([3, 4]), **heads, rope_theta=1e4)
    g.set_outputs([g.log_softmax(x), turned])
    assert sorted(kinds_of(program(g).ops)) == ["CausalAttentionRoPE", "LogSoftmax"]
    assert sorted(kinds_of(program(g, compat="0.2").ops)) == ["CausalAttention", "Softmax"]


def test_the_relative_graph_numbers_leaves_first_and_ends_with_new_values() -> None:
    made = program(decode_step()).relative()
    assert made.inputs == (0, 1, 2, 3, 4, 5)
    assert [[t.id.value for t in op.inputs] for op in made.ops] == [[1, 4, 3], [2, 5, 3], [0, 6, 7, 3]]
    assert made.outputs == (8, 6, 7)
    assert made.num_values == 9


def test_equal_graphs_beside_other_dead_nodes_are_one_program() -> None:
    def built(dead: bool) -> ir.RelativeGraph:
        g = Graph()
        if dead:
            g.parameter("dead", [7])
        g.set_outputs([g.relu(g.input("x", [2]))])
        return program(g).relative()

    assert built(True) == built(False)


@pytest.mark.parametrize(
    ("name", "nodes", "parameters", "values"),
    [
        ("smollm2-135m", 726, 272, 134_515_008),
        ("smollm2-135m-loss", 728, 272, 134_515_008),
        ("smollm2-135m-prefill", 726, 272, 134_515_008),
        ("smollm2-135m-decode", 847, 332, None),
        ("smollm2-head64-loss-differentiated", 128, 20, None),
        ("whisper-tiny", 146, 67, 9_935_616),
        ("resnet18", 112, 42, None),
        ("resnet50", 284, 108, 69_959_848),
        ("sd-unet-tiny-loss", 124, 53, 1_326_080),
        ("smolvla-base", 381, None, 99_848_592),
        ("smolvlm2-500m", 1197, 489, 507_482_304),
    ],
)
def test_sizes_of_the_crates_models(name: str, nodes: int, parameters: int | None, values: int | None) -> None:
    graph = rust_graph(name)
    leaves = [n.ty for n in graph.nodes() if n.op.kind == "Parameter"]
    assert len(graph.nodes()) == nodes
    assert parameters is None or len(leaves) == parameters
    assert values is None or sum(ty.num_elements() for ty in leaves) == values
