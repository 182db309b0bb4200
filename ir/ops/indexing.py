"""Gather, scatter, select: base operations that take indices. Source: burn-ir `BaseOperationIr`.

Indices are integers of any width and lie in range; none wraps. Where an update meets the same place twice, the last one
in row-major order wins an `Assign`, and every other update counts each of them.
"""

from ir.dtype import Dim, StrEnum
from ir.op import In, Op, Out
from ir.registry import BASE, kind


class IndexingUpdateOp(StrEnum):
    """What an update does to the element that is there."""

    Assign = "Assign"
    Add = "Add"
    Mul = "Mul"
    Min = "Min"
    Max = "Max"


@kind(*BASE)
class Select(Op):
    """The slices of `tensor` at `indices` (m,) along `dim`; out has m there."""

    tensor: In
    dim: Dim
    indices: In
    out: Out


@kind(*BASE)
class SelectAssign(Op):
    """`tensor` with slice j of `value` applied to the slice at `indices[j]` along `dim`."""

    tensor: In
    dim: Dim
    indices: In
    value: In
    update: IndexingUpdateOp
    out: Out


@kind(*BASE)
class Gather(Op):
    """out[c] = tensor[c with c[dim] replaced by indices[c]]; out has the shape of `indices`."""

    tensor: In
    dim: Dim
    indices: In
    out: Out


@kind(*BASE)
class Scatter(Op):
    """`tensor` with value[c] applied at c with c[dim] replaced by indices[c], for each c of `indices`."""

    tensor: In
    dim: Dim
    indices: In
    value: In
    update: IndexingUpdateOp
    out: Out


@kind(*BASE)
class ScatterNd(Op):
    """`data` with the block values[b] applied at indices[b], for each b.

    data (d0, ..) · indices (B.., k) · values (B.., *data.shape[k:]) -> out as data.
    """

    data: In
    indices: In
    values: In
    reduction: IndexingUpdateOp
    out: Out


@kind(*BASE)
class GatherNd(Op):
    """The blocks of `data` at `indices`: data (d0, ..) · indices (B.., k) -> out (B.., *data.shape[k:])."""

    data: In
    indices: In
    out: Out
