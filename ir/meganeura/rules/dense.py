"""Rules of leaves, elementwise kinds, products and reductions."""

from typing import Any, Final

from ir.meganeura.ops import elementwise, leaf, linear, reduce
from ir.meganeura.ops.records import Binary, Unary
from ir.meganeura.rules.checks import count, elements, equal, f32, fail, like, rank, rule, same_shape
from ir.meganeura.types import TensorType
from ir.op import Op


@rule(leaf.Parameter, leaf.Input, leaf.Nop)
def free(op: Op) -> None:
    """What is declared."""


@rule(leaf.Constant)
def constant(op: leaf.Constant) -> None:
    """What is declared; the data has as many elements."""
    if not op.is_uniform or count(op.out) == 0:
        equal(op, "data", count(op.out), len(op.data) // 4, "elements of the shape")


@rule(leaf.Identity)
def identity(op: leaf.Identity) -> TensorType:
    """As many elements as x."""
    old, new = count(op.x), count(op.out)
    equal(op, "out", old, new, f"reshape: element count mismatch ({old} vs {new})")
    return like(op.x)


@rule(
    elementwise.Relu,
    elementwise.Sigmoid,
    elementwise.Tanh,
    elementwise.Neg,
    elementwise.Abs,
    elementwise.Log,
    elementwise.Recip,
    elementwise.Silu,
    elementwise.Gelu,
)
def unary(op: Unary) -> TensorType:
    """The type of x."""
    return like(op.x)


@rule(reduce.Softmax, reduce.LogSoftmax)
def softmax(op: Unary) -> TensorType:
    """The type of x."""
    rank(op, "x", 2, "softmax requires 2D input")
    return like(op.x)


@rule(elementwise.Add)
def add(op: Binary) -> TensorType:
    """The type of a."""
    return same_shape(op, "b", "a", "add requires matching shapes")


@rule(elementwise.Mul)
def mul(op: Binary) -> TensorType:
    """The type of a."""
    return same_shape(op, "b", "a", "mul requires matching shapes")


@rule(elementwise.Greater)
def greater(op: Binary) -> TensorType:
    """The type of a."""
    return same_shape(op, "b", "a", "greater requires matching shapes")


@rule(elementwise.BiasAdd)
def bias_add(op: elementwise.BiasAdd) -> TensorType:
    """The type of a; the bias is repeated along its flat elements."""
    if count(op.bias) == 0 < count(op.a):
        fail(op, "bias", "expected at least 1 element, got 0")
    return like(op.a)


@rule(elementwise.SwiGLU)
def swiglu(op: elementwise.SwiGLU) -> TensorType:
    """The type of the gate."""
    elements(op, "up", count(op.gate), "as gate")
    return like(op.gate)


@rule(elementwise.SwiGLUConcat)
def swiglu_concat(op: Unary) -> TensorType:
    """X (M, 2N) -> (M, N)."""
    rows, cols = rank(op, "x", 2, "SwiGLUConcat requires 2D input")
    equal(op, "x", 0, cols % 2, "SwiGLUConcat requires even N")
    return f32(rows, cols // 2)


@rule(elementwise.SwiGLUConcatGrad)
def swiglu_concat_grad(op: elementwise.SwiGLUConcatGrad) -> TensorType:
    """The type of x."""
    _, cols = rank(op, "x", 2, "SwiGLUConcat requires 2D input")
    equal(op, "x", 0, cols % 2, "SwiGLUConcat requires even N")
    elements(op, "grad_out", count(op.x) // 2, "half of x")
    return like(op.x)


@rule(elementwise.SwiGLUGradGate)
def swiglu_grad_gate(op: elementwise.SwiGLUGradGate) -> TensorType:
    """The type of the gate."""
    elements(op, "grad_out", count(op.gate), "as gate")
    elements(op, "up", count(op.gate), "as gate")
    return like(op.gate)


@rule(elementwise.SwiGLUGradUp)
def swiglu_grad_up(op: elementwise.SwiGLUGradUp) -> TensorType:
    """The type of the gate."""
    elements(op, "grad_out", count(op.gate), "as gate")
    return like(op.gate)


@rule(elementwise.SiluGrad)
def silu_grad(op: elementwise.SiluGrad) -> TensorType:
    """The type of x."""
    elements(op, "grad_out", count(op.x), "as x")
    return like(op.x)


def _product(op: Any, a: int, b: int, rank_text: str, text: str) -> TensorType:
    """Operand a contracted along axis `a` with operand b along axis `b`."""
    left, right = rank(op, "a", 2, rank_text), rank(op, "b", 2, rank_text)
    equal(op, "b", left[a], right[b], text)
    return f32(left[1 - a], right[1 - b])


_PRODUCTS: Final[dict[type[Op], tuple[int, int, str, str]]] = {
    linear.MatMul: (1, 0, "matmul requires 2D tensors", "matmul inner dimensions must match"),
    linear.MatMulAT: (0, 0, "MatMulAT requires 2D tensors", "MatMulAT: K dimensions must match"),
    linear.MatMulBT: (1, 1, "MatMulBT requires 2D tensors", "MatMulBT: K dimensions must match"),
}


@rule(*_PRODUCTS)
def product(op: Binary) -> TensorType:
    """What the two outer axes say."""
    return _product(op, *_PRODUCTS[type(op)])


_FUSED: Final[dict[type[Op], type[Op]]] = {
    linear.FusedMatMulAdd: linear.MatMul,
    linear.FusedMatMulATAdd: linear.MatMulAT,
    linear.FusedMatMulBTAdd: linear.MatMulBT,
}


@rule(*_FUSED)
def product_add(op: linear.ProductAdd) -> TensorType:
    """As the product; the summand has as many elements."""
    made = _product(op, *_PRODUCTS[_FUSED[type(op)]])
    elements(op, "d", made.num_elements(), "as the product")
    return made


@rule(linear.FusedRmsNormMatMul)
def rms_norm_matmul(op: linear.FusedRmsNormMatMul) -> TensorType:
    """X (M, K) · w_proj (K, N) -> (M, N)."""
    x = rank(op, "x", 2, "rms_norm requires 2D input")
    elements(op, "w_norm", x[1], "columns of x")
    w = rank(op, "w_proj", 2, "matmul requires 2D tensors")
    equal(op, "w_proj", x[1], w[0], "matmul inner dimensions must match")
    return f32(x[0], w[1])


@rule(linear.Transpose)
def transpose(op: Unary) -> TensorType:
    """Axes swapped."""
    rows, cols = rank(op, "x", 2, "transpose requires 2D tensor")
    return f32(cols, rows)


@rule(reduce.SumAll, reduce.MeanAll)
def all_of(op: Unary) -> TensorType:
    """One element."""
    return f32(1)


@rule(reduce.SumRows)
def sum_rows(op: Unary) -> TensorType:
    """One element per column."""
    return f32(rank(op, "x", 2, "sum_rows requires 2D input")[1])


@rule(reduce.CrossEntropyLoss)
def cross_entropy_loss(op: reduce.CrossEntropyLoss) -> TensorType:
    """One element."""
    same_shape(op, "labels", "logits", "logits and labels must match")
    rank(op, "logits", 2, "cross_entropy_loss requires 2D logits")
    return f32(1)


@rule(reduce.BceLoss)
def bce_loss(op: reduce.BceLoss) -> TensorType:
    """One element."""
    same_shape(op, "labels", "pred", "pred and labels must match")
    return f32(1)
