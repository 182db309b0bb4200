"""Matrix products, all two-dimensional. Source: meganeura `graph.rs`."""

from ir.meganeura.ops.records import Binary, F32Value, Unary, node_kind
from ir.op import In, Op, Out


class ProductAdd(Op):
    """A product and a summand of the full shape of the result."""

    a: In
    b: In
    d: In
    out: Out


@node_kind
class MatMul(Binary):
    """A B. a (M, K) · b (K, N) -> out (M, N)."""


@node_kind
class MatMulAT(Binary):
    """A^T B. a (K, M) · b (K, N) -> out (M, N)."""


@node_kind
class MatMulBT(Binary):
    """A B^T. a (M, K) · b (N, K) -> out (M, N)."""


@node_kind
class FusedMatMulAdd(ProductAdd):
    """A B + D. a (M, K) · b (K, N) · d (M, N) -> out (M, N)."""


@node_kind
class FusedMatMulATAdd(ProductAdd):
    """A^T B + D. a (K, M) · b (K, N) · d (M, N) -> out (M, N)."""


@node_kind
class FusedMatMulBTAdd(ProductAdd):
    """A B^T + D. a (M, K) · b (N, K) · d (M, N) -> out (M, N)."""


@node_kind
class FusedRmsNormMatMul(Op):
    """RmsNorm(x, w_norm, eps) W. x (M, K) · w_norm (K,) · w_proj (K, N) -> out (M, N)."""

    x: In
    w_norm: In
    w_proj: In
    out: Out
    eps: F32Value


@node_kind
class Transpose(Unary):
    """x (M, N) -> out (N, M)."""
