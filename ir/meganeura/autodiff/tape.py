"""The graph that grows backwards, and the registry of gradient rules."""

from collections.abc import Callable
from typing import Any, TypeVar

from ir.errors import UnsupportedOp
from ir.meganeura.graph import Graph
from ir.meganeura.ops.elementwise import BiasAdd
from ir.meganeura.text import show_op
from ir.meganeura.types import Compat, NodeId, TensorType
from ir.op import Op
from ir.tensor import TensorIr

Rule = Callable[["Tape", Any, NodeId], None]
RuleT = TypeVar("RuleT", bound=Rule)

_rules: dict[tuple[type[Op], Compat], Rule] = {}


def gradient(*kinds: type[Op], compat: Compat = None) -> Callable[[RuleT], RuleT]:
    """Register a function as the gradient rule of `kinds`: `(tape, op, grad)` gives a gradient to operands of `op`.

    A rule with a `compat` replaces the other one there.

    Raises:
        RuntimeError: a kind has such a rule already.
    """

    def register(function: RuleT) -> RuleT:
        for kind in kinds:
            if (kind, compat) in _rules:
                raise RuntimeError(f"{kind.__name__} has a gradient rule already")
            _rules[kind, compat] = function
        return function

    return register


def rule_of(op: Op, compat: Compat) -> Rule:
    """The rule for `op`.

    Raises:
        UnsupportedOp: it has none.
    """
    rule = _rules.get((type(op), compat)) or _rules.get((type(op), None))
    if rule is None:
        raise UnsupportedOp(
            f"{op.kind}: a kind that is a gradient has none in the graph; differentiate the program with jax.grad"
        )
    return rule


def differentiable(compat: Compat = None) -> frozenset[type[Op]]:
    """The kinds through which a gradient flows."""
    kinds = {kind for kind, _ in _rules}
    rules = {kind: _rules.get((kind, compat)) or _rules.get((kind, None)) for kind in kinds}
    return frozenset(kind for kind, rule in rules.items() if rule not in (None, refuse, stop))


def refuse(tape: "Tape", op: Op, grad: NodeId) -> None:
    """The rule of kinds that stand in no training graph.

    Raises:
        UnsupportedOp: always.
    """
    raise UnsupportedOp(
        f"autodiff not supported for {show_op(op)} — this op cannot appear in training graphs. "
        "Use the training-compatible variant instead."
    )


def stop(tape: "Tape", op: Op, grad: NodeId) -> None:
    """The rule of kinds through which nothing flows."""


class Tape:
    """The graph under construction, and the gradient of each of its forward nodes so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.grads: dict[NodeId, NodeId] = {}

    def give(self, tensor: TensorIr, grad: NodeId) -> None:
        """Another share of the gradient of an operand; shares are added up in the order in which they come."""
        id = tensor.id.value
        known = self.grads.get(id)
        self.grads[id] = grad if known is None else self.graph.add(known, grad)

    def full(self, value: float, like: TensorIr) -> NodeId:
        """A constant of the shape of `like`."""
        return self.graph.full(value, like.shape.dims)

    def spread(self, scalar: NodeId, like: TensorIr) -> NodeId:
        """The one element of `scalar`, everywhere in the shape of `like`."""
        return self.graph.append(BiasAdd, [self.full(0.0, like), scalar])

    def minus(self, a: NodeId, b: NodeId) -> NodeId:
        """A - b."""
        return self.graph.add(a, self.graph.neg(b))

    def shaped(self, x: NodeId, dims: tuple[int, ...]) -> NodeId:
        """X under the shape `dims`; itself where it has it."""
        return x if self.graph.ty(x).shape == dims else self.graph.reshape(x, dims)

    def row_sums(self, x: NodeId) -> NodeId:
        """The sum of each row of x [M, N], repeated along the row."""
        rows_sum = self.graph.matmul(x, self.graph.full(1.0, [self.graph.ty(x).shape[1], 1]))
        return self.graph.matmul(rows_sum, self.graph.full(1.0, [1, self.graph.ty(x).shape[1]]))


def share(count: int) -> float:
    """1 / count; infinite for 0, as the mean of nothing is."""
    return 1 / count if count else float("inf")


def node_of(tensor: TensorIr) -> NodeId:
    """The node that makes an operand."""
    return tensor.id.value


def type_of(tensor: TensorIr) -> TensorType:
    """The type of an operand."""
    return TensorType.of(tensor)
