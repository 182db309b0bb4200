"""The list of nodes under a graph: what every builder method and every pass goes through."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from ir.errors import DTypeError, ShapeError, StreamError
from ir.meganeura.node import Node, attributes_of, inputs_of, make_op, out_tensor, reading
from ir.meganeura.ops.leaf import Constant, Nop
from ir.meganeura.rules import result_type, verify_node
from ir.meganeura.types import F32, DerivedParam, NodeId, TensorType
from ir.op import Op
from ir.tensor import TensorIr

GraphT = TypeVar("GraphT", bound="GraphCore")
_UNKNOWN = TensorType((), F32)


class GraphCore:
    """Nodes in id order, the ids that are results, and the parameters that the optimizer made."""

    __slots__ = ("_ops", "_outputs", "derived_params")

    def __init__(self) -> None:
        self._ops: list[Op] = []
        self._outputs: list[NodeId] = []
        self.derived_params: list[DerivedParam] = []

    @classmethod
    def new(cls: type[GraphT]) -> GraphT:
        """An empty graph."""
        return cls()

    def copy(self: GraphT) -> GraphT:
        """A graph of the same nodes, which are immutable, that grows by itself."""
        made = type(self)()
        made._ops, made._outputs = list(self._ops), list(self._outputs)
        made.derived_params = list(self.derived_params)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphCore):
            return NotImplemented
        return (self._ops, self._outputs, self.derived_params) == (other._ops, other._outputs, other.derived_params)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Graph of {len(self._ops)} nodes, {len(self._outputs)} outputs>"

    def ops(self) -> tuple[Op, ...]:
        """The nodes as operations, in id order."""
        return tuple(self._ops)

    def nodes(self) -> tuple[Node, ...]:
        """The nodes in id order."""
        return tuple(map(Node, self._ops))

    def node(self, id: NodeId) -> Node:
        """The node `id`.

        Raises:
            StreamError: there is none.
        """
        return Node(self.op(id))

    def op(self, id: NodeId) -> Op:
        """The node `id` as an operation.

        Raises:
            StreamError: there is none.
        """
        if not 0 <= id < len(self._ops):
            raise StreamError(f"node %{id} does not exist; this graph has nodes %0 to %{len(self._ops) - 1}")
        return self._ops[id]

    def tensor(self, id: NodeId) -> TensorIr:
        """The result of node `id` as an operand.

        Raises:
            StreamError: there is no such node.
        """
        return reading(self.op(id).outputs[0])

    def ty(self, id: NodeId) -> TensorType:
        """Shape and dtype of the result of node `id`.

        Raises:
            StreamError: there is no such node.
        """
        return TensorType.of(self.op(id).outputs[0])

    def outputs(self) -> tuple[NodeId, ...]:
        """The results, in the order set."""
        return tuple(self._outputs)

    def set_outputs(self, outputs: Iterable[NodeId]) -> None:
        """Say which nodes are results; the first is the loss of a training graph.

        Raises:
            StreamError: there is no such node.
        """
        chosen = list(outputs)
        for id in chosen:
            self.op(id)
        self._outputs = chosen

    def add_raw_node(self, kind: type[Op] | Op, inputs: Sequence[NodeId], ty: TensorType, **attributes: Any) -> NodeId:
        """Append a node without looking at shapes; `verify` does. Returns its id.

        Args:
            kind: the class, or an operation whose attributes the node gets.
            inputs: the nodes it reads.
            ty: the type of its result.
            attributes: what the op holds, by Meganeura's names.

        Raises:
            StreamError: an input does not exist, or their number is not that of the kind.
            WireError: an attribute is missing, unknown, or has a value of another type.
        """
        self._ops.append(self._made(kind, inputs, out_tensor(len(self._ops), ty), attributes))
        return len(self._ops) - 1

    def replace_node(self, id: NodeId, kind: type[Op] | Op, inputs: Sequence[NodeId], **attributes: Any) -> None:
        """Make node `id` another one with a result of the same type, as passes do.

        Raises:
            StreamError, WireError: as `add_raw_node`.
        """
        self._ops[id] = self._made(kind, inputs, self.op(id).outputs[0], attributes)

    def append(
        self, kind: type[Op], inputs: Sequence[NodeId], ty: TensorType | None = None, **attributes: Any
    ) -> NodeId:
        """Append a node, checked; its type by the rule of its kind where none is given. Returns its id.

        Raises:
            StreamError, WireError: as `add_raw_node`.
            ShapeError, DTypeError: the inputs do not fit the kind.
        """
        id = len(self._ops)
        op = self._made(kind, inputs, out_tensor(id, ty or _UNKNOWN), attributes)
        if ty is None:
            made = result_type(op)
            assert made is not None, "a free type is always given"
            op = replace(op, out=out_tensor(id, made))
        else:
            verify_node(op)
        self._ops.append(op)
        return id

    def _made(self, kind: type[Op] | Op, inputs: Sequence[NodeId], out: TensorIr, attributes: dict[str, Any]) -> Op:
        if isinstance(kind, Op):
            known = {"data": kind.data} if isinstance(kind, Constant) else attributes_of(kind)
            kind, attributes = type(kind), known | attributes
        try:
            operands = [self.tensor(n) for n in inputs]
        except StreamError as error:
            raise StreamError(f"{kind.__name__}.inputs: {error}") from None
        return make_op(kind, operands, out, attributes, self.op)

    def verify(self) -> None:
        """Check every node by itself.

        Raises:
            ShapeError, DTypeError: the message says which node.
        """
        for id, op in enumerate(self._ops):
            try:
                verify_node(op)
            except (ShapeError, DTypeError) as error:
                raise type(error)(f"node %{id}: {error}") from None

    def uses(self, id: NodeId) -> list[NodeId]:
        """The nodes that read node `id`, each once; deleted nodes do not read."""
        readers = [op for op in self._ops if not isinstance(op, Nop)]
        return [Node(op).id for op in readers if any(t.id.value == id for t in inputs_of(op))]
