"""Lowerings of `ir.ops.activation`. Halves are computed in f32 and rounded once; their scalars are rounded before."""

import math
from collections.abc import Callable
from functools import wraps

import jax
import jax.numpy as jnp
from jax import lax

import ir
from ir.op import Op
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, broadcast, const, widen_half


def activation(function: Callable[..., Array]) -> Callable[..., Array]:
    """Run a lowering on widened halves and give the result in the dtype of its first operand."""

    @wraps(function)
    def lowered(op: Op, x: Array, *others: Array) -> Array:
        return function(op, widen_half(x), *map(widen_half, others)).astype(x.dtype)

    return lowered


@lower(ir.Relu)
@activation
def relu(op: ir.Relu, x: Array) -> Array:
    """max(x, 0), with -0 as 0; the comparison lets NaN through."""
    zero = const(0, x)
    return jnp.where(x <= zero, zero, x)


@lower(ir.ReluBackward)
@activation
def relu_backward(op: ir.ReluBackward, out: Array, grad: Array) -> Array:
    """The gradient where the output of the forward pass is not <= 0 (so also where it is NaN)."""
    out, grad = broadcast(out, grad)
    zero = const(0, grad)
    return jnp.where(out <= zero, zero, grad)


@lower(ir.LeakyRelu, ir.PRelu)
@activation
def leaky_relu(op: ir.LeakyRelu | ir.PRelu, x: Array, slope: Array) -> Array:
    """x, or slope * x below 0; the slope is a scalar or broadcasts."""
    x, slope = broadcast(x, slope)
    return jnp.where(x < const(0, x), slope * x, x)


@lower(ir.Gelu)
@activation
def gelu(op: ir.Gelu, x: Array) -> Array:
    """The exact x Phi(x). `erfc` keeps the digits of the lower tail, where 1 + erf cancels."""
    return x * normal_cdf(x)


@lower(ir.GeluBackward)
@activation
def gelu_backward(op: ir.GeluBackward, x: Array, grad: Array) -> Array:
    """The exact grad (Phi(x) + x phi(x)), where Burn's default trait method takes the tanh approximation."""
    x, grad = broadcast(x, grad)
    density = jnp.exp(const(-0.5, x) * x * x) * const(1 / math.sqrt(2 * math.pi), x)
    return grad * (normal_cdf(x) + x * density)


def normal_cdf(x: Array) -> Array:
    """Phi(x), the normal distribution function."""
    return const(0.5, x) * lax.erfc(const(-math.sqrt(0.5), x) * x)


@lower(ir.Sigmoid)
@activation
def sigmoid(op: ir.Sigmoid, x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return jax.nn.sigmoid(x)


@lower(ir.SigmoidBackward)
@activation
def sigmoid_backward(op: ir.SigmoidBackward, out: Array, grad: Array) -> Array:
    """`grad * s * (1 - s)`, with s the output of the forward pass."""
    out, grad = broadcast(out, grad)
    return grad * out * (const(1, out) - out)


@lower(ir.HardSigmoid)
@activation
def hard_sigmoid(op: ir.HardSigmoid, x: Array, alpha: Array, beta: Array) -> Array:
    """`alpha * x + beta` held within 0 and 1; NaN stays."""
    return jnp.clip(alpha * x + beta, const(0, x), const(1, x))


@lower(ir.LogSigmoid)
@activation
def log_sigmoid(op: ir.LogSigmoid, x: Array) -> Array:
    """-log(1 + exp(-x)), without overflow."""
    return jax.nn.log_sigmoid(x)


@lower(ir.LogSigmoidBackward)
@activation
def log_sigmoid_backward(op: ir.LogSigmoidBackward, x: Array, grad: Array) -> Array:
    """`grad * sigmoid(-x)`."""
    x, grad = broadcast(x, grad)
    return grad * jax.nn.sigmoid(-x)


@lower(ir.Softmax)
@activation
def softmax(op: ir.Softmax, x: Array) -> Array:
    """exp(x - max) normalised along the axis: a line of -inf, or one with +inf, is NaN."""
    return jax.nn.softmax(x, axis=op.axis)


@lower(ir.LogSoftmax)
@activation
def log_softmax(op: ir.LogSoftmax, x: Array) -> Array:
    """Logarithm of softmax along the axis: x - max - log(sum(exp(x - max)))."""
    return jax.nn.log_softmax(x, axis=op.axis)


@lower(ir.Softmin)
@activation
def softmin(op: ir.Softmin, x: Array) -> Array:
    """Softmax of -x."""
    return jax.nn.softmax(-x, axis=op.axis)
