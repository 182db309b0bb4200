"""Nodes in topological order with new ids. Source: meganeura 0.2 `graph.rs`, `Graph::toposort`."""

from collections.abc import Iterable, Sequence

from ir.errors import StreamError
from ir.meganeura.buffers import ordered_pairs
from ir.meganeura.node import Node, inputs_of
from ir.meganeura.ops.attention import AttentionGrad
from ir.meganeura.ops.indexing import CacheWrite
from ir.meganeura.ops.leaf import Nop
from ir.meganeura.program import in_order
from ir.meganeura.types import Compat, NodeId
from ir.op import Op


def order_of(ops: Sequence[Op], compat: Compat = None) -> list[NodeId]:
    """The ids of the nodes that are not deleted: leaves first, then each node once its last input has come.

    Nodes that become ready at once keep the order of their inputs; one that reads a node twice waits for it twice.
    Reads and writes of one cache keep the order that they have; with `compat="0.2"` only as far as inputs tell.

    Raises:
        StreamError: a node reads a deleted one, or nodes read each other in a circle. With `compat="0.2"` those nodes
            are left out instead, except for one that reads a deleted node of a smaller id.
    """
    deleted = {n for n, op in enumerate(ops) if isinstance(op, Nop)}
    waits = [0] * len(ops)
    readers: list[list[NodeId]] = [[] for _ in ops]
    for n, op in enumerate(ops):
        if n in deleted:
            continue
        operands = inputs_of(op) if compat else op.inputs  # without `fwd_node`, or with it
        for read in (t.id.value for t in operands):
            if read in deleted:
                if compat is None:
                    raise StreamError(f"toposort: node %{n} ({op.kind}) reads node %{read}, which is deleted (Nop)")
                if read < n:
                    continue
            waits[n] += 1
            readers[read].append(n)
    if compat is None:
        for first, second in _effects(ops):
            waits[second] += 1
            readers[first].append(second)
    ready = [n for n in range(len(ops)) if n not in deleted and waits[n] == 0]
    for n in ready:
        for reader in readers[n]:
            waits[reader] -= 1
            if waits[reader] == 0:
                ready.append(reader)
    if compat is None and len(ready) + len(deleted) < len(ops):
        stuck = [f"%{n}" for n, left in enumerate(waits) if left > 0]
        raise StreamError(f"toposort: nodes {', '.join(stuck)} read each other in a circle")
    return ready


def _effects(ops: Sequence[Op]) -> Iterable[tuple[NodeId, NodeId]]:
    """What must keep its order because of a `CacheWrite`."""
    if not any(isinstance(op, CacheWrite) for op in ops):
        return ()
    kept = [n for n, op in enumerate(ops) if not isinstance(op, Nop)]
    return ordered_pairs(ops, list(in_order(ops, kept)))


def kept_inputs(op: Op, number: dict[NodeId, NodeId]) -> list[NodeId]:
    """The new ids of what `op` reads, deleted nodes left out."""
    return [number[n] for n in Node(op).inputs if n in number]


def forward_ids(op: Op, number: dict[NodeId, NodeId], compat: Compat) -> dict[str, NodeId]:
    """The attribute `fwd_node` of a gradient of attention; Meganeura 0.2 forgets to renumber it.

    Raises:
        StreamError: the forward node is deleted.
    """
    if not isinstance(op, AttentionGrad):
        return {}
    old = op.fwd_node.id.value
    if compat is not None:
        return {"fwd_node": old}
    if old not in number:
        raise StreamError(f"{op.kind}.fwd_node: node %{old} is deleted (Nop)")
    return {"fwd_node": number[old]}
