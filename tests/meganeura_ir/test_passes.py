"""Random graphs through the crate's passes and ours: the same graph comes out, or both refuse."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest

from ir.errors import IrError, StreamError
from ir.meganeura import Graph, differentiate, fuse_group_norm_silu, optimize
from tests.meganeura.referee import Pass, Referee, RefereeError
from tests.meganeura_ir.random_graphs import broken_graph, random_graph

GRAPHS = 150

PASSES: dict[Pass, Callable[[Graph], Graph]] = {
    "Differentiate": lambda graph: differentiate(graph, compat="0.2"),
    "Optimize": lambda graph: optimize(graph, compat="0.2"),
    "FuseGroupNormSilu": lambda graph: fuse_group_norm_silu(graph, compat="0.2"),
    "Toposort": lambda graph: graph.toposort(compat="0.2"),
}


@pytest.fixture(scope="module")
def asked() -> Iterator[Referee]:
    with Referee() as asked:
        yield asked


def odd_graph(seed: int) -> Graph:
    """Leaves with names of any characters, and constants of any bits."""
    g, rng = Graph(), Random(seed)
    ranges = [(0, 0x7F), (0xA0, 0x17F), (0x300, 0x36F), (0x3040, 0x30FF), (0x1F300, 0x1F64F), (0xE000, 0xE0FF)]
    for _ in range(20):
        name = "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randrange(8)))
        rng.choice((g.input, g.parameter, g.input_u32))(name, [rng.randrange(5) for _ in range(rng.randrange(4))])
        g.constant(array("f", rng.randbytes(4 * 9)), [9])
        g.constant([rng.choice((1, -1)) * rng.randrange(10**7) * 10.0 ** rng.randrange(-30, 20)], [1])
    g.set_outputs(rng.choices(range(60), k=3))
    return g


def test_the_text_of_a_graph_is_the_crates(asked: Referee) -> None:
    for seed in range(GRAPHS):
        for graph in (random_graph(seed), odd_graph(seed)):
            text = asked.text(graph.to_msgpack())
            assert str(graph) == text, f"seed {seed}"
            assert str(Graph.parse(text)) == text, f"seed {seed}"


def crates(asked: Referee, graph: Graph, name: Pass) -> bytes | None:
    """What the crate makes of a graph; None where it panics."""
    try:
        return asked.passes(graph.to_msgpack(), [name])
    except RefereeError:
        return None


def ours(graph: Graph, name: Pass) -> Graph | IrError:
    """What we make of it, or why we do not."""
    try:
        return PASSES[name](graph)
    except IrError as error:
        return error


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_makes_the_crates_graph(asked: Referee, name: Pass) -> None:
    seen: Counter[str] = Counter()
    for seed in range(GRAPHS):
        graph = random_graph(seed)
        made, wanted = ours(graph, name), crates(asked, graph, name)
        if isinstance(made, IrError):
            assert wanted is None, f"seed {seed}: only we refuse: {made}"
            seen["refused"] += 1
        else:
            assert made.to_msgpack() == wanted, f"seed {seed}"
            seen.update(op.kind for op in made.ops())
    assert seen["refused"] < GRAPHS // 4
    assert len(seen) > 45, "the graphs are too much alike"


def test_the_order_of_broken_graphs(asked: Referee) -> None:
    """Where a node is left with fewer inputs than its kind has, the crate's graph is one that nothing here loads."""
    seen: Counter[str] = Counter()
    for seed in range(3 * GRAPHS):
        graph = broken_graph(seed)
        made, wanted = ours(graph, "Toposort"), crates(asked, graph, "Toposort")
        assert wanted is not None, f"seed {seed}"
        if isinstance(made, IrError):
            assert "inputs: expected" in str(made), f"seed {seed}: {made}"
            with pytest.raises(StreamError, match="inputs: expected"):
                Graph.from_msgpack(wanted)
        else:
            assert made.to_msgpack() == wanted, f"seed {seed}"
        seen[type(made).__name__] += 1
    assert min(seen["Graph"], seen["StreamError"]) > 30, seen
