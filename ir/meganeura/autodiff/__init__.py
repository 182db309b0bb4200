"""Gradients as nodes of the graph. Source: meganeura 0.2 `autodiff.rs`.

By default a gradient is what calculus says it is, at a kink the side of 0, at the maxima of a window the first one.
`compat="0.2"` makes the nodes of Meganeura 0.2: see `release_0_2`.
"""

from ir.errors import ShapeError, StreamError
from ir.meganeura.autodiff import dense, image, release_0_2, sequence
from ir.meganeura.autodiff.tape import Tape, differentiable, rule_of
from ir.meganeura.graph import Graph
from ir.meganeura.ops.leaf import Parameter
from ir.meganeura.program import in_order
from ir.meganeura.types import Compat, NodeId

__all__ = ["dense", "differentiable", "differentiate", "image", "release_0_2", "sequence"]


def differentiate(forward: Graph, compat: Compat = None) -> Graph:
    """The forward graph, followed by the gradient of its first output for each parameter.

    Nodes keep their ids. Outputs are those of the forward graph, then one gradient per `Parameter` node in id order, of
    its shape; zeros where nothing flows. With `compat="0.2"` they are the loss alone, then the gradients, a missing one
    being a zero of shape [1].

    >>> g = Graph()
    >>> g.set_outputs([g.mean_all(g.matmul(g.input("x", [4, 3]), g.parameter("w", [3, 2])))])
    >>> differentiate(g, compat="0.2").outputs()
    (3, 7)

    Raises:
        StreamError: the graph has no outputs.
        ShapeError: the loss has more than one element.
        UnsupportedOp: the loss depends on a kind that stands in no training graph.
    """
    if not forward.outputs():
        raise StreamError("the graph has no outputs; the first one is the loss")
    loss = forward.outputs()[0]
    if forward.ty(loss).num_elements() != 1:
        raise ShapeError(f"the loss, node %{loss}, is {forward.ty(loss)}; expected one element")
    ops = forward.ops()
    tape = Tape(forward.copy())
    one = tape.graph.scalar(1.0)
    tape.grads[loss] = tape.shaped(one, forward.ty(loss).shape)
    for id in reversed(list(in_order(ops, [loss]))):
        grad = tape.grads.get(id)
        if grad is not None:
            rule_of(ops[id], compat)(tape, ops[id], grad)
    parameters = [op.out.id.value for op in ops if isinstance(op, Parameter)]
    grads = [_gradient_of(tape, id, compat) for id in parameters]
    tape.graph.set_outputs([*(forward.outputs() if compat is None else [loss]), *grads])
    return tape.graph


def _gradient_of(tape: Tape, parameter: NodeId, compat: Compat) -> NodeId:
    if parameter in tape.grads:
        return tape.grads[parameter]
    return tape.graph.full(0.0, tape.graph.ty(parameter).shape if compat is None else [1])
