"""Elementwise kinds. Source: meganeura `graph.rs`, `codegen` shaders.

Names: s is the logistic function of the argument, dsilu(z) = s(z) + z s(z) (1 - s(z)).
"""

from ir.meganeura.ops.records import Binary, Unary, node_kind
from ir.op import In, Op, Out


@node_kind
class Add(Binary):
    """a + b, of equal shapes."""


@node_kind
class Mul(Binary):
    """a * b, of equal shapes."""


@node_kind
class Greater(Binary):
    """1 where a > b, else 0, in F32."""


@node_kind
class BiasAdd(Op):
    """out.flat[i] = a.flat[i] + bias.flat[i mod numel(bias)].

    a (M, N) · bias (N,) or (1, N) from the builder; any sizes in a raw node.
    """

    a: In
    bias: In
    out: Out


@node_kind
class Relu(Unary):
    """max(x, 0)."""


@node_kind
class Sigmoid(Unary):
    """1 / (1 + exp(-x))."""


@node_kind
class Tanh(Unary):
    """The hyperbolic tangent."""


@node_kind
class Neg(Unary):
    """-x."""


@node_kind
class Abs(Unary):
    """|x|."""


@node_kind
class Log(Unary):
    """The natural logarithm, of 0 it is -inf."""


@node_kind
class Recip(Unary):
    """1 / x, of 0 it is inf."""


@node_kind
class Silu(Unary):
    """x s(x)."""


@node_kind
class Gelu(Unary):
    """x (1 + tanh(0.7978845608 (x + 0.044715 x^3))) / 2: the tanh form, although `graph.rs` comments the erf form."""


@node_kind
class SwiGLU(Op):
    """silu(gate) * up."""

    gate: In
    up: In
    out: Out


@node_kind
class SwiGLUConcat(Unary):
    """silu(x[:, :N]) * x[:, N:]. x (M, 2N) -> out (M, N)."""


@node_kind
class SwiGLUConcatGrad(Op):
    """Gradient of `SwiGLUConcat`: [grad_out up dsilu(gate) | grad_out silu(gate)].

    grad_out (M, N) · x (M, 2N) -> out (M, 2N).
    """

    grad_out: In
    x: In
    out: Out


@node_kind
class SwiGLUGradGate(Op):
    """Gradient of `SwiGLU` for its gate: grad_out up dsilu(gate)."""

    grad_out: In
    gate: In
    up: In
    out: Out


@node_kind
class SwiGLUGradUp(Op):
    """Gradient of `SwiGLU` for its other input: grad_out silu(gate)."""

    grad_out: In
    gate: In
    out: Out


@node_kind
class SiluGrad(Op):
    """Gradient of `Silu`: grad_out dsilu(x)."""

    grad_out: In
    x: In
    out: Out
