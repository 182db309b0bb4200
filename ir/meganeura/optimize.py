"""Fusions on graphs: what Meganeura's optimizer does to a graph before it compiles it. Source: `optimize.rs`.

XLA needs none of them. They are here so that a graph can be brought into the form that Meganeura runs, its parameters
joined, and compared with it node by node. Old ids stay; a node that a fusion swallows becomes a `Nop`.

| rule | needs |
|---|---|
| `MatMul+Add`, also AT and BT | the product is read by the addition alone |
| `Mul+Sigmoid`, `Silu+Mul` | the inner node is read by the product alone |
| `SwiGLU(MatMul,MatMul)` | both products read one input, and weights of equal shape; they get a joint parameter |
| `GroupNorm+Silu` | the norm is read by silu alone; for inference, since its gradient is made of more nodes |

By default a node that is an output, that its reader reads twice, or that a cache write parts from it, is never
swallowed, and joint weights are made of parameters only; with `compat="0.2"` they are, as in Meganeura 0.2.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from ir.meganeura.graph import Graph
from ir.meganeura.node import Node, attributes_of
from ir.meganeura.ops.elementwise import Add, Mul, Sigmoid, Silu, SwiGLU, SwiGLUConcat
from ir.meganeura.ops.indexing import CacheWrite
from ir.meganeura.ops.leaf import Nop, Parameter
from ir.meganeura.ops.linear import (
    FusedMatMulAdd,
    FusedMatMulATAdd,
    FusedMatMulBTAdd,
    MatMul,
    MatMulAT,
    MatMulBT,
)
from ir.meganeura.ops.norm import GroupNorm, GroupNormSilu
from ir.meganeura.types import Compat, DerivedParam, NodeId, TensorType
from ir.op import Op

Fusion: TypeAlias = Callable[["_Rewriter", NodeId], str | None]
"""Fuses what ends at a node and returns the rule's name, or does nothing."""


class OptimizeReport(Struct, frozen=True):
    """What an optimizer did."""

    nodes_before: int
    nodes_after: int
    """Without those that are deleted."""
    fusions_applied: tuple[tuple[str, NodeId], ...]
    """Each rule that fired, with the node it left, in order."""
    elapsed_s: float

    @property
    def rules_fired(self) -> dict[str, int]:
        """How often each rule fired, in the order of first times."""
        return dict(Counter(rule for rule, _ in self.fusions_applied))

    def __str__(self) -> str:
        lines = ["=== Optimization Report ==="]
        if self.fusions_applied:
            lines += ["Rules fired:", *(f"  {rule}  x{count}" for rule, count in self.rules_fired.items())]
        fused = max(self.nodes_before - self.nodes_after, 0)
        lines.append(f"Graph: {self.nodes_before} nodes -> {self.nodes_after} active nodes ({fused} fused away)")
        if self.fusions_applied:
            lines.append("Fusions: " + ", ".join(f"{rule} @node{id}" for rule, id in self.fusions_applied))
        return "\n".join([*lines, f"Elapsed: {self.elapsed_s * 1e3:.1f}ms"])


def optimize(graph: Graph, compat: Compat = None) -> Graph:
    """The graph with every fusion but `GroupNorm+Silu` applied until none fits; `graph` stays as it is."""
    return optimize_with_report(graph, compat)[0]


def optimize_with_report(graph: Graph, compat: Compat = None) -> tuple[Graph, OptimizeReport]:
    """As `optimize`, with what was done."""
    return _rewritten(graph, compat, (_fuse_add, _fuse_silu, _fuse_swiglu, _fuse_swiglu_concat))


def fuse_group_norm_silu(graph: Graph, compat: Compat = None) -> Graph:
    """The graph with each silu of a group norm fused, as inference sessions have it."""
    return _rewritten(graph, compat, (_fuse_group_norm,))[0]


def _rewritten(graph: Graph, compat: Compat, rules: tuple[Fusion, ...]) -> tuple[Graph, OptimizeReport]:
    began = time.perf_counter()
    rewriter = _Rewriter(graph.copy(), compat)
    fusions: list[tuple[str, NodeId]] = []
    before = -1
    while len(fusions) != before:
        before = len(fusions)
        for fuse in rules:
            fusions += rewriter.everywhere(fuse)
    made = rewriter.graph
    active = sum(not isinstance(op, Nop) for op in made.ops())
    return made, OptimizeReport(len(graph.ops()), active, tuple(fusions), time.perf_counter() - began)


class _Rewriter:
    """A graph under change, with the readers of every node at hand."""

    def __init__(self, graph: Graph, compat: Compat) -> None:
        self.graph: Final = graph
        self.compat: Final = compat
        self._kept: set[NodeId] = set() if compat else set(graph.outputs())
        self._writes = [n.id for n in graph.nodes() if isinstance(n.op, CacheWrite)]
        self._readers: list[set[NodeId]] = [set() for _ in graph.ops()]
        for node in graph.nodes():
            if not isinstance(node.op, Nop):
                self._read(node.id)

    def _read(self, id: NodeId) -> None:
        for read in self.graph.node(id).inputs:
            self._readers[read].add(id)

    def _unread(self, id: NodeId) -> None:
        for read in self.graph.node(id).inputs:
            self._readers[read].discard(id)

    def swallows(self, reader: NodeId, id: NodeId) -> bool:
        """Whether node `id` may be deleted once its only reader, `reader`, has what it is made of."""
        if id in self._kept or self._readers[id] != {reader}:
            return False
        if self.compat:
            return True
        crossed = any(id < write < reader for write in self._writes)  # the reader would read another cache
        return not crossed and self.graph.node(reader).inputs.count(id) == 1

    def everywhere(self, fuse: Fusion) -> list[tuple[str, NodeId]]:
        """Try a rule at every node there is now; the rule's name and the node, where it fired."""
        return [(name, id) for id in range(len(self.graph.ops())) if (name := fuse(self, id))]

    def append(self, kind: type[Op], inputs: list[NodeId], ty: TensorType, **attributes: object) -> NodeId:
        """Another node."""
        id = self.graph.append(kind, inputs, ty, **attributes)
        self._readers.append(set())
        self._read(id)
        return id

    def replace(self, id: NodeId, kind: type[Op], inputs: list[NodeId], **attributes: object) -> None:
        """Node `id` becomes another one."""
        self._unread(id)
        self.graph.replace_node(id, kind, inputs, **attributes)
        self._read(id)

    def delete(self, id: NodeId) -> None:
        """Node `id` is deleted; its inputs stay written."""
        self._unread(id)
        self.graph.replace_node(id, Nop, self.graph.node(id).inputs)


_WITH_ADD: Final[dict[type[Op], tuple[type[Op], str]]] = {
    MatMul: (FusedMatMulAdd, "MatMul+Add→FusedMatMulAdd"),
    MatMulAT: (FusedMatMulATAdd, "MatMulAT+Add→FusedMatMulATAdd"),
    MatMulBT: (FusedMatMulBTAdd, "MatMulBT+Add→FusedMatMulBTAdd"),
}


def _fuse_add(r: _Rewriter, id: NodeId) -> str | None:
    op = r.graph.op(id)
    if not isinstance(op, Add):
        return None
    a, b = Node(op).inputs
    product, summand = (a, b) if type(r.graph.op(a)) in _WITH_ADD else (b, a)
    found = _WITH_ADD.get(type(r.graph.op(product)))
    if found is None or not r.swallows(id, product):
        return None
    fused, name = found
    r.replace(id, fused, [*r.graph.node(product).inputs, summand])
    r.delete(product)
    return name


def _fuse_silu(r: _Rewriter, id: NodeId) -> str | None:
    op = r.graph.op(id)
    if not isinstance(op, Mul):
        return None
    a, b = Node(op).inputs
    for x, sigmoid in ((a, b), (b, a)):
        if isinstance(r.graph.op(sigmoid), Sigmoid) and r.graph.node(sigmoid).inputs == (x,):
            if not r.swallows(id, sigmoid):
                return None
            r.replace(id, Silu, [x])
            r.delete(sigmoid)
            return "Mul+Sigmoid→Silu"
    return None


def _fuse_swiglu(r: _Rewriter, id: NodeId) -> str | None:
    op = r.graph.op(id)
    if not isinstance(op, Mul):
        return None
    a, b = Node(op).inputs
    silu, up = (a, b) if isinstance(r.graph.op(a), Silu) else (b, a)
    if not isinstance(r.graph.op(silu), Silu) or not r.swallows(id, silu):
        return None
    r.replace(id, SwiGLU, [r.graph.node(silu).inputs[0], up])
    r.delete(silu)
    return "Silu+Mul→SwiGLU"


def _fuse_swiglu_concat(r: _Rewriter, id: NodeId) -> str | None:
    op = r.graph.op(id)
    if not isinstance(op, SwiGLU):
        return None
    products = Node(op).inputs
    gate, up = map(r.graph.op, products)
    if not isinstance(gate, MatMul) or not isinstance(up, MatMul) or gate.a.id != up.a.id or gate.b.shape != up.b.shape:
        return None
    if not all(r.swallows(id, product) for product in products):
        return None
    weights = [r.graph.op(product.b.id.value) for product in (gate, up)]
    if not r.compat and not all(isinstance(weight, Parameter) for weight in weights):
        return None
    rows, cols = gate.b.shape.dims
    names = [
        w.name if isinstance(w, Parameter) else other for w, other in zip(weights, ("w_gate", "w_up"), strict=True)
    ]
    joint = "+".join(names)
    r.graph.derived_params.append(DerivedParam(joint, tuple((name, cols) for name in names), rows))
    weight = r.append(Parameter, [], TensorType.f32([rows, 2 * cols]), name=joint)
    product = r.append(MatMul, [gate.a.id.value, weight], TensorType.f32([gate.a.shape.dims[0], 2 * cols]))
    r.replace(id, SwiGLUConcat, [product])
    for swallowed in dict.fromkeys(products):
        r.delete(swallowed)
    return "SwiGLU(MatMul,MatMul)→SwiGLUConcat(MatMul)"


def _fuse_group_norm(r: _Rewriter, id: NodeId) -> str | None:
    op = r.graph.op(id)
    if not isinstance(op, Silu):
        return None
    norm = r.graph.op(op.x.id.value)
    if not isinstance(norm, GroupNorm) or not r.swallows(id, op.x.id.value):
        return None
    r.replace(id, GroupNormSilu, list(Node(norm).inputs), **attributes_of(norm))
    r.delete(op.x.id.value)
    return "GroupNorm+Silu→GroupNormSilu"
