"""Gradients of leaves, elementwise kinds, products, reductions and losses."""

import math
from typing import Final

from ir.errors import ShapeError
from ir.meganeura.autodiff.tape import Tape, gradient, node_of, share, stop, type_of
from ir.meganeura.node import rounded
from ir.meganeura.ops import elementwise, leaf, linear, norm, reduce
from ir.meganeura.ops.records import Binary, Unary
from ir.meganeura.types import NodeId

gradient(leaf.Parameter, leaf.Input, leaf.Constant, leaf.Nop, elementwise.Greater)(stop)


@gradient(leaf.Identity)
def identity(t: Tape, op: leaf.Identity, g: NodeId) -> None:
    """The gradient under the shape of x."""
    t.give(op.x, t.graph.reshape(g, op.x.shape.dims))


@gradient(linear.MatMul)
def matmul(t: Tape, op: linear.MatMul, g: NodeId) -> None:
    """DA = g B^T, dB = A^T g."""
    _matmul(t, op, g)


def _matmul(t: Tape, op: linear.MatMul | linear.FusedMatMulAdd, g: NodeId) -> None:
    for_a, for_b = t.graph.matmul_bt(g, node_of(op.b)), t.graph.matmul_at(node_of(op.a), g)
    t.give(op.a, for_a)
    t.give(op.b, for_b)


@gradient(linear.MatMulAT)
def matmul_at(t: Tape, op: linear.MatMulAT, g: NodeId) -> None:
    """DA = B g^T, dB = A g."""
    _matmul_at(t, op, g)


def _matmul_at(t: Tape, op: linear.MatMulAT | linear.FusedMatMulATAdd, g: NodeId) -> None:
    for_a, for_b = t.graph.matmul_bt(node_of(op.b), g), t.graph.matmul(node_of(op.a), g)
    t.give(op.a, for_a)
    t.give(op.b, for_b)


@gradient(linear.MatMulBT)
def matmul_bt(t: Tape, op: linear.MatMulBT, g: NodeId) -> None:
    """DA = g B, dB = g^T A."""
    _matmul_bt(t, op, g)


def _matmul_bt(t: Tape, op: linear.MatMulBT | linear.FusedMatMulBTAdd, g: NodeId) -> None:
    for_a, for_b = t.graph.matmul(g, node_of(op.b)), t.graph.matmul_at(g, node_of(op.a))
    t.give(op.a, for_a)
    t.give(op.b, for_b)


@gradient(linear.FusedMatMulAdd)
def matmul_add(t: Tape, op: linear.FusedMatMulAdd, g: NodeId) -> None:
    """As the product; the summand gets g."""
    _matmul(t, op, g)
    t.give(op.d, g)


@gradient(linear.FusedMatMulATAdd)
def matmul_at_add(t: Tape, op: linear.FusedMatMulATAdd, g: NodeId) -> None:
    """As the product; the summand gets g."""
    _matmul_at(t, op, g)
    t.give(op.d, g)


@gradient(linear.FusedMatMulBTAdd)
def matmul_bt_add(t: Tape, op: linear.FusedMatMulBTAdd, g: NodeId) -> None:
    """As the product; the summand gets g."""
    _matmul_bt(t, op, g)
    t.give(op.d, g)


@gradient(linear.FusedRmsNormMatMul)
def rms_norm_matmul(t: Tape, op: linear.FusedRmsNormMatMul, g: NodeId) -> None:
    """The norm is made again."""
    x, w = node_of(op.x), node_of(op.w_norm)
    normed = t.graph.append(norm.RmsNorm, [x, w], eps=op.eps)
    t.give(op.w_proj, t.graph.matmul_at(normed, g))
    for_norm = t.graph.matmul_bt(g, node_of(op.w_proj))
    for_w, for_x = t.graph.rms_norm_grad_w(for_norm, x, w, op.eps), t.graph.rms_norm_grad_x(for_norm, x, w, op.eps)
    t.give(op.w_norm, for_w)
    t.give(op.x, for_x)


@gradient(linear.Transpose)
def transpose(t: Tape, op: linear.Transpose, g: NodeId) -> None:
    """The gradient, transposed."""
    t.give(op.x, t.graph.transpose(g))


@gradient(elementwise.Add)
def add(t: Tape, op: Binary, g: NodeId) -> None:
    """G to both."""
    t.give(op.a, g)
    t.give(op.b, g)


@gradient(elementwise.Mul)
def mul(t: Tape, op: Binary, g: NodeId) -> None:
    """Each gets g times the other."""
    for_a, for_b = t.graph.mul(g, node_of(op.b)), t.graph.mul(g, node_of(op.a))
    t.give(op.a, for_a)
    t.give(op.b, for_b)


@gradient(elementwise.BiasAdd)
def bias_add(t: Tape, op: elementwise.BiasAdd, g: NodeId) -> None:
    """G, and its sums over the places where each element of the bias was added.

    Raises:
        ShapeError: the bias does not go into a a whole number of times.
    """
    t.give(op.a, g)
    total, size = type_of(op.a).num_elements(), type_of(op.bias).num_elements()
    if total % size:
        raise ShapeError(f"BiasAdd.bias: a gradient needs a divisor of the {total} elements of a, got {size} elements")
    t.give(op.bias, t.graph.sum_rows(t.shaped(g, (total // size, size)), type_of(op.bias)))


@gradient(elementwise.Relu)
def relu(t: Tape, op: elementwise.Relu, g: NodeId) -> None:
    """G where x > 0."""
    mask = t.graph.greater(node_of(op.x), t.full(0.0, op.x))
    t.give(op.x, t.graph.mul(g, mask))


@gradient(elementwise.Sigmoid)
def sigmoid(t: Tape, op: elementwise.Sigmoid, g: NodeId) -> None:
    """G y (1 - y)."""
    y = node_of(op.out)
    rest = t.minus(t.full(1.0, op.out), y)
    t.give(op.x, t.graph.mul(g, t.graph.mul(y, rest)))


@gradient(elementwise.Tanh)
def tanh(t: Tape, op: elementwise.Tanh, g: NodeId) -> None:
    """G (1 - y^2)."""
    y, one = node_of(op.out), t.full(1.0, op.out)
    t.give(op.x, t.graph.mul(g, t.minus(one, t.graph.mul(y, y))))


@gradient(elementwise.Neg)
def neg(t: Tape, op: elementwise.Neg, g: NodeId) -> None:
    """-g."""
    t.give(op.x, t.graph.neg(g))


@gradient(elementwise.Abs)
def abs_(t: Tape, op: elementwise.Abs, g: NodeId) -> None:
    """G times the sign of x, 0 at 0."""
    x, zero = node_of(op.x), t.full(0.0, op.x)
    sign = t.minus(t.graph.greater(x, zero), t.graph.greater(zero, x))
    t.give(op.x, t.graph.mul(g, sign))


@gradient(elementwise.Log)
def log(t: Tape, op: elementwise.Log, g: NodeId) -> None:
    """G / x."""
    t.give(op.x, t.graph.mul(g, t.graph.recip(node_of(op.x))))


@gradient(elementwise.Recip)
def recip(t: Tape, op: elementwise.Recip, g: NodeId) -> None:
    """-g / x^2."""
    y = t.graph.recip(node_of(op.x))
    t.give(op.x, t.graph.mul(g, t.graph.neg(t.graph.mul(y, y))))


@gradient(elementwise.Silu)
def silu(t: Tape, op: elementwise.Silu, g: NodeId) -> None:
    """One node."""
    t.give(op.x, t.graph.silu_grad(g, node_of(op.x)))


@gradient(elementwise.SwiGLU)
def swiglu(t: Tape, op: elementwise.SwiGLU, g: NodeId) -> None:
    """One node each."""
    gate, up = node_of(op.gate), node_of(op.up)
    for_gate, for_up = t.graph.swiglu_grad_gate(g, gate, up), t.graph.swiglu_grad_up(g, gate)
    t.give(op.gate, for_gate)
    t.give(op.up, t.shaped(for_up, op.up.shape.dims))


@gradient(elementwise.SwiGLUConcat)
def swiglu_concat(t: Tape, op: elementwise.SwiGLUConcat, g: NodeId) -> None:
    """One node."""
    t.give(op.x, t.graph.append(elementwise.SwiGLUConcatGrad, [g, node_of(op.x)]))


_GELU_SLOPE: Final = math.sqrt(2 / math.pi)
_GELU_CUBE: Final = 0.044715


@gradient(elementwise.Gelu)
def gelu(t: Tape, op: elementwise.Gelu, g: NodeId) -> None:
    """G (1 + th + x u' (1 - th^2)) / 2 with th = tanh(u), u = s (x + c x^3): the derivative of the tanh form."""
    x = node_of(op.x)
    square = t.graph.mul(x, x)
    slope, one = t.full(_GELU_SLOPE, op.x), t.full(1.0, op.x)

    def along(cube: float) -> NodeId:
        """X (s + cube x^2)."""
        return t.graph.mul(x, t.graph.add(slope, t.graph.mul(square, t.full(cube, op.x))))

    th = t.graph.tanh(along(_GELU_SLOPE * _GELU_CUBE))
    bend = t.graph.mul(along(3 * _GELU_SLOPE * _GELU_CUBE), t.minus(one, t.graph.mul(th, th)))
    twice = t.graph.add(t.graph.add(one, th), bend)
    t.give(op.x, t.graph.mul(g, t.graph.mul(twice, t.full(0.5, op.x))))


@gradient(reduce.SumAll)
def sum_all(t: Tape, op: Unary, g: NodeId) -> None:
    """G everywhere."""
    t.give(op.x, t.spread(g, op.x))


@gradient(reduce.MeanAll)
def mean_all(t: Tape, op: Unary, g: NodeId) -> None:
    """G / N everywhere."""
    t.give(op.x, t.spread(_shared(t, g, type_of(op.x).num_elements()), op.x))


def _shared(t: Tape, g: NodeId, count: int) -> NodeId:
    """G [1] / count."""
    return t.graph.mul(g, t.graph.full(share(count), t.graph.ty(g).shape))


@gradient(reduce.SumRows)
def sum_rows(t: Tape, op: Unary, g: NodeId) -> None:
    """G in each row."""
    t.give(op.x, t.graph.append(elementwise.BiasAdd, [t.full(0.0, op.x), g]))


@gradient(reduce.Softmax)
def softmax(t: Tape, op: Unary, g: NodeId) -> None:
    """Y (g - sum of g y over the row)."""
    y = node_of(op.out)
    weighed = t.graph.mul(g, y)
    t.give(op.x, t.minus(weighed, t.graph.mul(y, t.row_sums(weighed))))


@gradient(reduce.LogSoftmax)
def log_softmax(t: Tape, op: Unary, g: NodeId) -> None:
    """G - softmax(x) sum of g over the row."""
    y = t.graph.softmax(node_of(op.x))
    t.give(op.x, t.minus(g, t.graph.mul(y, t.row_sums(g))))


@gradient(reduce.CrossEntropyLoss)
def cross_entropy_loss(t: Tape, op: reduce.CrossEntropyLoss, g: NodeId) -> None:
    """G / B (softmax(logits) sum of labels over the row - labels); labels get none."""
    labels = node_of(op.labels)
    weighed = t.graph.mul(t.graph.softmax(node_of(op.logits)), t.row_sums(labels))
    scale = t.spread(_shared(t, g, op.logits.shape.dims[0]), op.logits)
    t.give(op.logits, t.graph.mul(t.minus(weighed, labels), scale))


@gradient(reduce.BceLoss)
def bce_loss(t: Tape, op: reduce.BceLoss, g: NodeId) -> None:
    """G / N (p - y) / (p (1 - p)) where the loss does not hold p at its bounds, else 0; labels get none."""
    p, one = node_of(op.pred), t.full(1.0, op.pred)
    low, high = rounded(1e-7), rounded(1 - rounded(1e-7))
    inside = t.graph.mul(
        t.graph.greater(p, t.full(low, op.pred)),
        t.graph.greater(t.full(high, op.pred), p),
    )
    # Outside, 1/2 stands in for p: 0 times the inverse of p (1 - p) = 0 would be NaN.
    outside = t.graph.mul(t.minus(one, inside), t.full(0.5, op.pred))
    safe = t.graph.add(t.graph.mul(inside, p), outside)
    slope = t.graph.recip(t.graph.mul(safe, t.minus(one, safe)))
    made = t.graph.mul(t.graph.mul(t.minus(p, node_of(op.labels)), slope), inside)
    t.give(op.pred, t.graph.mul(made, t.spread(_shared(t, g, type_of(op.pred).num_elements()), op.pred)))
