"""Lowerings of `ir.meganeura.ops.elementwise`."""

import jax
import jax.numpy as jnp
from jax import lax

from ir.errors import ShapeError
from ir.meganeura.ops.elementwise import (
    Abs,
    Add,
    BiasAdd,
    Gelu,
    Greater,
    Log,
    Mul,
    Neg,
    Recip,
    Relu,
    Sigmoid,
    Silu,
    SiluGrad,
    SwiGLU,
    SwiGLUConcat,
    SwiGLUConcatGrad,
    SwiGLUGradGate,
    SwiGLUGradUp,
    Tanh,
)
from ir.meganeura.ops.records import Binary, Unary
from jax_backend.lowering import lower
from jax_backend.ops import activation
from jax_backend.ops._shared import Array, const
from jax_backend.ops.meganeura._shared import declared, dsilu, two_dims, viewed


def _paired(op: Binary, a: Array, b: Array) -> tuple[Array, Array]:
    return a, viewed(b, a.shape, f"{op.kind}.b")


@lower(Add)
@declared
def add(op: Add, a: Array, b: Array) -> Array:
    """The sum."""
    a, b = _paired(op, a, b)
    return a + b


@lower(Mul)
@declared
def mul(op: Mul, a: Array, b: Array) -> Array:
    """The product, element by element."""
    a, b = _paired(op, a, b)
    return a * b


@lower(Greater)
@declared
def greater(op: Greater, a: Array, b: Array) -> Array:
    """1 where a > b, else 0; NaN is greater than nothing."""
    a, b = _paired(op, a, b)
    return (a > b).astype(jnp.float32)


@lower(BiasAdd)
@declared
def bias_add(op: BiasAdd, a: Array, bias: Array) -> Array:
    """The bias over and over along the flat elements of a.

    Raises:
        ShapeError: the bias is empty and a is not.
    """
    if not bias.size and a.size:
        raise ShapeError(f"BiasAdd.bias: expected at least one element for a of {tuple(a.shape)}, got none")
    period = max(bias.size, 1)
    if a.size % period == 0:
        return a.reshape(-1, period) + bias.reshape(1, -1) if bias.size else a
    return a.reshape(-1) + jnp.tile(bias.reshape(-1), a.size // period + 1)[: a.size]


lower(Relu)(declared(activation.relu))
lower(Sigmoid)(declared(activation.sigmoid))


@lower(Tanh)
@declared
def tanh(op: Tanh, x: Array) -> Array:
    """The hyperbolic tangent."""
    return jnp.tanh(x)


@lower(Neg)
@declared
def neg(op: Neg, x: Array) -> Array:
    """-x."""
    return -x


@lower(Abs)
@declared
def absolute(op: Abs, x: Array) -> Array:
    """|x|, in a form whose derivative at 0 is 0; that of `jnp.abs` is 1 there."""
    return x * lax.sign(x)


@lower(Log)
@declared
def log(op: Log, x: Array) -> Array:
    """The natural logarithm."""
    return jnp.log(x)


@lower(Recip)
@declared
def recip(op: Recip, x: Array) -> Array:
    """1 / x."""
    return const(1, x) / x


@lower(Silu)
@declared
def silu(op: Silu, x: Array) -> Array:
    """The argument times its logistic function."""
    return x * lax.logistic(x)


@lower(Gelu)
@declared
def gelu(op: Gelu, x: Array) -> Array:
    """The tanh form; Burn's `Gelu` is the exact one."""
    return jax.nn.gelu(x, approximate=True)


@lower(SwiGLU)
@declared
def swiglu(op: SwiGLU, gate: Array, up: Array) -> Array:
    """silu(gate) * up."""
    return gate * lax.logistic(gate) * viewed(up, gate.shape, "SwiGLU.up")


def _halves(op: Unary | SwiGLUConcatGrad, x: Array) -> tuple[Array, Array]:
    """Gate and up: the left and the right half of the columns.

    Raises:
        ShapeError: x is no matrix of an even number of columns.
    """
    if two_dims(x, f"{op.kind}.x").shape[1] % 2:
        raise ShapeError(f"{op.kind}.x: expected an even number of columns, got shape {tuple(x.shape)}")
    width = x.shape[1] // 2
    return x[:, :width], x[:, width:]


@lower(SwiGLUConcat)
@declared
def swiglu_concat(op: SwiGLUConcat, x: Array) -> Array:
    """Silu of the left half times the right one."""
    gate, up = _halves(op, x)
    return gate * lax.logistic(gate) * up


@lower(SwiGLUConcatGrad)
@declared
def swiglu_concat_grad(op: SwiGLUConcatGrad, grad_out: Array, x: Array) -> Array:
    """Gradients of both halves, side by side."""
    gate, up = _halves(op, x)
    grad_out = viewed(grad_out, gate.shape, "SwiGLUConcatGrad.grad_out")
    return jnp.concatenate([grad_out * up * dsilu(gate), grad_out * gate * lax.logistic(gate)], axis=1)


@lower(SwiGLUGradGate)
@declared
def swiglu_grad_gate(op: SwiGLUGradGate, grad_out: Array, gate: Array, up: Array) -> Array:
    """grad_out up dsilu(gate)."""
    gate, up = (viewed(x, grad_out.shape, f"{op.kind}.{n}") for x, n in ((gate, "gate"), (up, "up")))
    return grad_out * up * dsilu(gate)


@lower(SwiGLUGradUp)
@declared
def swiglu_grad_up(op: SwiGLUGradUp, grad_out: Array, gate: Array) -> Array:
    """grad_out silu(gate)."""
    gate = viewed(gate, grad_out.shape, "SwiGLUGradUp.gate")
    return grad_out * gate * lax.logistic(gate)


@lower(SiluGrad)
@declared
def silu_grad(op: SiluGrad, grad_out: Array, x: Array) -> Array:
    """grad_out dsilu(x)."""
    return grad_out * dsilu(viewed(x, grad_out.shape, "SiluGrad.x"))
