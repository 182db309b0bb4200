"""The graph that users build, pass through optimizers, save and load. Source: meganeura 0.2 `graph.rs`."""

from typing import TypeVar

from ir.errors import StreamError
from ir.meganeura.build import DenseBuilder, ImageBuilder, SequenceBuilder
from ir.meganeura.serial import GraphRecord, decode_json, decode_msgpack, encode_json, encode_msgpack, ops_of
from ir.meganeura.text import read_graph, show_graph
from ir.meganeura.toposort import forward_ids, kept_inputs, order_of
from ir.meganeura.types import Compat, NodeId

GraphT = TypeVar("GraphT", bound="Graph")


class Graph(DenseBuilder, SequenceBuilder, ImageBuilder):
    """Nodes, results and derived parameters, with Meganeura's builder methods.

    >>> g = Graph()
    >>> y = g.matmul(g.input("x", [2, 3]), g.parameter("w", [3, 4]))
    >>> g.set_outputs([y])
    >>> print(g, end="")
    %0 = Input { name: "x" }() : F32<[2, 3]>
    %1 = Parameter { name: "w" }() : F32<[3, 4]>
    %2 = MatMul(%0, %1) : F32<[2, 4]>
    outputs: %2
    """

    __slots__ = ()

    def __str__(self) -> str:
        return show_graph(self._ops, self._outputs)

    def toposort(self: GraphT, compat: Compat = None) -> GraphT:
        """The same graph with consecutive ids: leaves first, no node before its inputs, deleted nodes gone.

        `compat="0.2"` keeps the order's quirks: nodes and outputs that depend on deleted ones or on themselves vanish
        without a word, and `fwd_node` keeps its old number.

        Raises:
            StreamError: a node or an output needs a deleted node, or nodes read each other in a circle; with
                `compat="0.2"` only where a node is left with fewer inputs than its kind has.
        """
        order = order_of(self._ops, compat)
        number: dict[NodeId, NodeId] = {old: new for new, old in enumerate(order)}
        made = type(self)()
        for old in order:
            op = self._ops[old]
            made.add_raw_node(op, kept_inputs(op, number), self.ty(old), **forward_ids(op, number, compat))
        made.set_outputs(self._renumbered_outputs(number, compat))
        made.derived_params = list(self.derived_params)
        return made

    def _renumbered_outputs(self, number: dict[NodeId, NodeId], compat: Compat) -> list[NodeId]:
        for place, out in enumerate(self._outputs):
            if out not in number and compat is None:
                raise StreamError(
                    f"toposort: output {place} (node %{out}, {self._ops[out].kind}) was removed as Nop; "
                    "a pass must not delete a node that `set_outputs` lists"
                )
        return [number[out] for out in self._outputs if out in number]

    def to_json(self) -> bytes:
        """The graph as JSON, in serde's layout.

        Raises:
            WireError: a number is NaN or infinite.
        """
        return encode_json(self._ops, self._outputs, self.derived_params)

    def to_msgpack(self) -> bytes:
        """The graph as msgpack, in serde's layout."""
        return encode_msgpack(self._ops, self._outputs, self.derived_params)

    @classmethod
    def from_json(cls: type[GraphT], text: bytes | str) -> GraphT:
        """The graph in a JSON text, every node checked.

        Raises:
            WireError: the text is no graph; the message names the place.
            StreamError, ShapeError, DTypeError: a node does not have the inputs that its kind needs.
        """
        return cls._of(decode_json(text))

    @classmethod
    def from_msgpack(cls: type[GraphT], data: bytes) -> GraphT:
        """The graph in msgpack bytes, every node checked.

        Raises:
            WireError, StreamError, ShapeError, DTypeError: as `from_json`.
        """
        return cls._of(decode_msgpack(data))

    @classmethod
    def parse(cls: type[GraphT], text: str) -> GraphT:
        """The graph that `str(graph)` shows, without derived parameters.

        Raises:
            WireError, StreamError, ShapeError, DTypeError: as `from_json`.
        """
        return cls._of(read_graph(text))

    @classmethod
    def _of(cls: type[GraphT], record: GraphRecord) -> GraphT:
        made = cls()
        made._ops = ops_of(record)
        made._outputs = list(record.outputs)
        made.derived_params = list(record.derived_params)
        return made
