"""The part of `burn-xla inspect` that shows a Meganeura graph. Imports no jax."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ir.meganeura import Graph, TensorType, program
from ir.meganeura.ops import Input, Parameter
from ir.op import Op
from jax_backend.cli.text import size, table

LEAVES: Final = (Parameter, Input)


class Leaf(Struct):
    """A parameter or input of a graph."""

    name: str
    kind: str
    type: str
    num_bytes: int
    is_cache: bool
    """A `CacheWrite` changes it."""


class GraphSummary(Struct):
    """What a graph holds."""

    nodes: int
    operations: int
    """What the outputs and the cache writes need, without leaves."""
    kinds: Counter[str]
    """These operations by kind."""
    leaves: list[Leaf]
    """Those that are needed."""
    outputs: list[str]
    """Their types."""


def live_ops(graph: Graph) -> tuple[Op, ...]:
    """The operations that a run needs, in order."""
    return program(graph).ops


def summarise(graph: Graph) -> GraphSummary:
    """The counts of a graph.

    Raises:
        IrError: the graph does not run; the message says which node.
    """
    made = program(graph)
    states = {leaf for leaf, _ in made.states}
    leaves: list[Leaf] = []
    for op in made.leaves:
        type_ = TensorType.of(op.out)
        leaves.append(Leaf(op.name, op.kind, str(type_), type_.size_bytes(), op.out.id.value in states))
    types = [str(graph.ty(id)) for id in graph.outputs()]
    return GraphSummary(len(graph.ops()), len(made.ops), Counter(op.kind for op in made.ops), leaves, types)


def _counted(kind: str, leaves: Sequence[Leaf]) -> str:
    plural = "" if len(leaves) == 1 else "s"
    return f"{len(leaves)} {kind.lower()}{plural}, {size(sum(leaf.num_bytes for leaf in leaves))}"


def report(summary: GraphSummary, top: int) -> str:
    """The summary as text."""
    caches = [leaf for leaf in summary.leaves if leaf.is_cache]
    lines = [
        f"{summary.nodes} nodes, {summary.operations} operations needed",
        *(_counted(kind.__name__, [leaf for leaf in summary.leaves if leaf.kind == kind.__name__]) for kind in LEAVES),
    ]
    if caches:
        lines.append(f"{len(caches)} of them caches, {size(sum(leaf.num_bytes for leaf in caches))}")
    lines += [f"output {n}: {type_}" for n, type_ in enumerate(summary.outputs[:top])]
    rows = [(leaf.name, "cache" if leaf.is_cache else leaf.kind.lower(), leaf.type) for leaf in summary.leaves[:top]]
    hidden = max(len(summary.leaves), len(summary.outputs)) - top
    more = f"\n({hidden} more; --top lists them)" if hidden > 0 else ""
    kinds = table(("operation", "count"), summary.kinds.most_common())
    return "\n".join([*lines, "", kinds, "", table(("leaf", "is", "type"), rows)]) + more
