"""Which nodes share a buffer, and in which order a buffer is read and written.

`Identity` is an alias of what it reads; `CacheWrite` changes the buffer of its cache and is an alias of it. A read has
no edge to a write of the same buffer: that they keep their order is up to whoever orders nodes.
"""

from collections.abc import Iterable, Iterator, Sequence

from ir.meganeura.ops.indexing import CacheWrite
from ir.meganeura.ops.leaf import Identity
from ir.meganeura.types import NodeId
from ir.op import Op


def owners(ops: Sequence[Op]) -> dict[NodeId, NodeId]:
    """For each alias the node that made the buffer; a node that is none owns its own."""
    source: dict[NodeId, NodeId] = {}
    for op in ops:
        if isinstance(op, Identity | CacheWrite):
            source[op.out.id.value] = (op.x if isinstance(op, Identity) else op.cache).id.value
    found: dict[NodeId, NodeId] = {}
    for alias in source:
        owner, seen = alias, {alias}
        while (following := source.get(owner)) is not None and following not in seen:
            owner = following
            seen.add(owner)
        found[alias] = owner
    return found


def ordered_pairs(ops: Sequence[Op], sequence: Iterable[NodeId]) -> Iterator[tuple[NodeId, NodeId]]:
    """Pairs of nodes of which the first must run before the second, for both use a buffer that one of them writes.

    `sequence` are the nodes in an order that is right.
    """
    owner = owners(ops)
    written = {owner[op.out.id.value] for op in ops if isinstance(op, CacheWrite)}
    last_write: dict[NodeId, NodeId] = {}
    reads: dict[NodeId, list[NodeId]] = {buffer: [] for buffer in written}
    for id in sequence:
        op = ops[id]
        if isinstance(op, Identity):
            continue
        used = {owner.get(t.id.value, t.id.value) for t in op.inputs}
        for buffer in used & written:
            if buffer in last_write:
                yield last_write[buffer], id
            if isinstance(op, CacheWrite) and buffer == owner[id]:
                yield from ((read, id) for read in reads[buffer])
                last_write[buffer], reads[buffer] = id, []
            else:
                reads[buffer].append(id)
