"""Builder methods for leaves, elementwise kinds, products, reductions and losses."""

import struct
from collections.abc import Sequence
from typing import Any

from ir.meganeura.core import GraphCore
from ir.meganeura.ops import elementwise, leaf, linear, reduce
from ir.meganeura.rules.checks import equal, rank
from ir.meganeura.types import F32, U32, NodeId, TensorType


class DenseBuilder(GraphCore):
    """Every method appends one node, checks it and returns its id, unless it says otherwise."""

    __slots__ = ()

    def input(self, name: str, shape: Sequence[int]) -> NodeId:
        """Numbers that the caller sets under `name`."""
        return self.append(leaf.Input, [], TensorType.new(shape, F32), name=name)

    def input_u32(self, name: str, shape: Sequence[int]) -> NodeId:
        """Indices or a position that the caller sets under `name`."""
        return self.append(leaf.Input, [], TensorType.new(shape, U32), name=name)

    def parameter(self, name: str, shape: Sequence[int]) -> NodeId:
        """Numbers that training updates, under `name`."""
        return self.append(leaf.Parameter, [], TensorType.f32(shape), name=name)

    def constant(self, data: Any, shape: Sequence[int]) -> NodeId:
        """Fixed numbers, row-major, each rounded to f32: a flat iterable, or a NumPy array of any shape.

        Raises:
            ShapeError: their count is not the product of `shape`.
            WireError: one of them is no number.
        """
        return self.append(leaf.Constant, [], TensorType.f32(shape), data=leaf.elements(data))

    def full(self, value: float, shape: Sequence[int]) -> NodeId:
        """A constant whose elements are all `value`, without a list of them."""
        ty = TensorType.f32(shape)
        return self.append(leaf.Constant, [], ty, data=struct.pack("<f", value) if ty.num_elements() else b"")

    def scalar(self, value: float) -> NodeId:
        """A constant of shape [1]."""
        return self.constant([value], [1])

    def matmul(self, a: NodeId, b: NodeId) -> NodeId:
        """A B. a [M, K] · b [K, N] -> [M, N]."""
        return self.append(linear.MatMul, [a, b])

    def matmul_at(self, a: NodeId, b: NodeId) -> NodeId:
        """A^T B. a [K, M] · b [K, N] -> [M, N]."""
        return self.append(linear.MatMulAT, [a, b])

    def matmul_bt(self, a: NodeId, b: NodeId) -> NodeId:
        """A B^T. a [M, K] · b [N, K] -> [M, N]."""
        return self.append(linear.MatMulBT, [a, b])

    def transpose(self, x: NodeId) -> NodeId:
        """X [M, N] -> [N, M]."""
        return self.append(linear.Transpose, [x])

    def add(self, a: NodeId, b: NodeId) -> NodeId:
        """A + b, of equal shapes."""
        return self.append(elementwise.Add, [a, b])

    def mul(self, a: NodeId, b: NodeId) -> NodeId:
        """A * b, of equal shapes."""
        return self.append(elementwise.Mul, [a, b])

    def greater(self, a: NodeId, b: NodeId) -> NodeId:
        """1 where a > b, else 0."""
        return self.append(elementwise.Greater, [a, b])

    def bias_add(self, a: NodeId, bias: NodeId) -> NodeId:
        """A [M, N] plus bias [N] in each row."""
        op = elementwise.BiasAdd(self.tensor(a), self.tensor(bias), self.tensor(a))
        dims = rank(op, "a", 2, "bias_add requires 2D input")
        equal(op, "bias", dims[1], rank(op, "bias", 1, "bias must be 1D")[0], "bias size must match last dim")
        return self.append(elementwise.BiasAdd, [a, bias])

    def broadcast_add(self, a: NodeId, b: NodeId) -> NodeId:
        """A [M, N] plus b [1, N] in each row, as a `BiasAdd`."""
        op = elementwise.BiasAdd(self.tensor(a), self.tensor(b), self.tensor(a))
        dims = rank(op, "a", 2, "broadcast_add requires 2D input")
        addend = rank(op, "bias", 2, "broadcast_add requires 2D addend")
        equal(op, "bias", 1, addend[0], "broadcast_add requires addend with first dim = 1")
        equal(op, "bias", dims[1], addend[1], "broadcast_add requires matching last dim")
        return self.append(elementwise.BiasAdd, [a, b])

    def relu(self, x: NodeId) -> NodeId:
        """max(x, 0)."""
        return self.append(elementwise.Relu, [x])

    def sigmoid(self, x: NodeId) -> NodeId:
        """1 / (1 + exp(-x))."""
        return self.append(elementwise.Sigmoid, [x])

    def tanh(self, x: NodeId) -> NodeId:
        """The hyperbolic tangent."""
        return self.append(elementwise.Tanh, [x])

    def neg(self, x: NodeId) -> NodeId:
        """-x."""
        return self.append(elementwise.Neg, [x])

    def abs(self, x: NodeId) -> NodeId:
        """|x|."""
        return self.append(elementwise.Abs, [x])

    def log(self, x: NodeId) -> NodeId:
        """The natural logarithm."""
        return self.append(elementwise.Log, [x])

    def recip(self, x: NodeId) -> NodeId:
        """1 / x."""
        return self.append(elementwise.Recip, [x])

    def silu(self, x: NodeId) -> NodeId:
        """X times its logistic function."""
        return self.append(elementwise.Silu, [x])

    def gelu(self, x: NodeId) -> NodeId:
        """GELU in the tanh form."""
        return self.append(elementwise.Gelu, [x])

    def swiglu(self, gate: NodeId, up: NodeId) -> NodeId:
        """silu(gate) * up."""
        return self.append(elementwise.SwiGLU, [gate, up])

    def swiglu_concat(self, input: NodeId) -> NodeId:
        """silu(x[:, :N]) * x[:, N:] of an input [M, 2N]."""
        return self.append(elementwise.SwiGLUConcat, [input])

    def swiglu_grad_gate(self, grad_out: NodeId, gate: NodeId, up: NodeId) -> NodeId:
        """Gradient of `swiglu` for its gate."""
        return self.append(elementwise.SwiGLUGradGate, [grad_out, gate, up])

    def swiglu_grad_up(self, grad_out: NodeId, gate: NodeId) -> NodeId:
        """Gradient of `swiglu` for its other input."""
        return self.append(elementwise.SwiGLUGradUp, [grad_out, gate])

    def silu_grad(self, grad_out: NodeId, x: NodeId) -> NodeId:
        """Gradient of `silu`."""
        return self.append(elementwise.SiluGrad, [grad_out, x])

    def reshape(self, x: NodeId, new_shape: Sequence[int]) -> NodeId:
        """The same elements under another shape; an alias of x."""
        return self.append(leaf.Identity, [x], TensorType.f32(new_shape))

    def div(self, a: NodeId, b: NodeId) -> NodeId:
        """A / b as a product with the reciprocal: two nodes."""
        return self.mul(a, self.recip(b))

    def mse_loss(self, pred: NodeId, target: NodeId) -> NodeId:
        """mean((pred - target)^2): four nodes."""
        difference = self.add(pred, self.neg(target))
        return self.mean_all(self.mul(difference, difference))

    def l1_loss(self, pred: NodeId, target: NodeId) -> NodeId:
        """mean(|pred - target|): four nodes."""
        return self.mean_all(self.abs(self.add(pred, self.neg(target))))

    def sum_all(self, x: NodeId) -> NodeId:
        """Sum of all elements -> [1]."""
        return self.append(reduce.SumAll, [x])

    def mean_all(self, x: NodeId) -> NodeId:
        """Mean of all elements -> [1]."""
        return self.append(reduce.MeanAll, [x])

    def sum_rows(self, x: NodeId, target_ty: TensorType) -> NodeId:
        """Column sums of x [M, N], declared as `target_ty`: [N] or [1, N]."""
        return self.append(reduce.SumRows, [x], target_ty)

    def softmax(self, x: NodeId) -> NodeId:
        """Softmax over the last axis."""
        return self.append(reduce.Softmax, [x])

    def log_softmax(self, x: NodeId) -> NodeId:
        """Logarithm of the softmax over the last axis."""
        return self.append(reduce.LogSoftmax, [x])

    def cross_entropy_loss(self, logits: NodeId, labels: NodeId) -> NodeId:
        """Cross entropy of logits [B, V] against weights of the same shape, averaged over B -> [1]."""
        return self.append(reduce.CrossEntropyLoss, [logits, labels])

    def bce_loss(self, pred: NodeId, labels: NodeId) -> NodeId:
        """Binary cross entropy of probabilities, averaged over all elements -> [1]."""
        return self.append(reduce.BceLoss, [pred, labels])
