"""Lowerings of `ir.meganeura.ops.linear`: products at the precision of the program, sums in float32."""

from ir.meganeura.ops.linear import (
    FusedMatMulAdd,
    FusedMatMulATAdd,
    FusedMatMulBTAdd,
    FusedRmsNormMatMul,
    MatMul,
    MatMulAT,
    MatMulBT,
    ProductAdd,
    Transpose,
)
from ir.meganeura.ops.records import Binary
from ir.op import Op
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array
from jax_backend.ops.meganeura._shared import declared, product, two_dims, viewed
from jax_backend.ops.meganeura.norm import rms_normalised

_AXES: dict[type[Op], tuple[int, int]] = {
    MatMul: (1, 0),
    MatMulAT: (0, 0),
    MatMulBT: (1, 1),
    FusedMatMulAdd: (1, 0),
    FusedMatMulATAdd: (0, 0),
    FusedMatMulBTAdd: (1, 1),
}
"""The axis of each factor that is summed over."""


@lower(MatMul, MatMulAT, MatMulBT)
@declared
def matmul(op: Binary, a: Array, b: Array) -> Array:
    """The product, of a or b transposed where the kind says so."""
    return product(a, b, *_AXES[type(op)], op.out, op.kind)


@lower(FusedMatMulAdd, FusedMatMulATAdd, FusedMatMulBTAdd)
@declared
def matmul_add(op: ProductAdd, a: Array, b: Array, d: Array) -> Array:
    """The product, plus d."""
    made = product(a, b, *_AXES[type(op)], op.out, op.kind)
    return made + viewed(d, made.shape, f"{op.kind}.d")


@lower(FusedRmsNormMatMul)
@declared
def rms_norm_matmul(op: FusedRmsNormMatMul, x: Array, w_norm: Array, w_proj: Array) -> Array:
    """The norm first, then the product."""
    return product(rms_normalised(op, x, w_norm), w_proj, 1, 0, op.out, op.kind)


@lower(Transpose)
@declared
def transpose(op: Transpose, x: Array) -> Array:
    """Rows become columns."""
    return two_dims(x, "Transpose.x").T
