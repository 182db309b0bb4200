"""One operation with its outer variant, and the graphs that fusion clients register.

Source: burn-ir `operation.rs`, `graph.rs`.
"""

from msgspec import Struct

from ir.dtype import Dim, DType
from ir.op import Op, operand_dtype
from ir.registry import BARE, WITH_DTYPE, families_of
from ir.scalar import ScalarIr
from ir.slices import SliceRange
from ir.tensor import TensorId


class OperationIr(Struct, frozen=True, gc=False):
    """An operation under its outer variant `family`; `dtype` is the hint that some variants carry.

    Neither decides anything: the tensors carry the dtypes.
    """

    family: str
    dtype: DType | None
    op: Op

    @property
    def path(self) -> str:
        """Path on the wire, such as `NumericFloat.Add`."""
        return self.family if self.family in BARE else f"{self.family}.{self.op.kind}"


def operation(op: Op) -> OperationIr:
    """`op` under the outer variant that Burn would choose for its tensors.

    >>> from ir import F32, Matmul, tensor
    >>> operation(Matmul(tensor(0, (2, 3), F32), tensor(1, (3, 2), F32), tensor(2, (2, 2), F32))).path
    'Float.Matmul'
    """
    families = families_of(type(op))
    if len(families) == 1 and families[0] not in WITH_DTYPE:
        return OperationIr(families[0], None, op)
    dtype = operand_dtype(op)
    suffix = "Bool" if dtype.is_bool else "Int" if dtype.is_int else "Float"
    family = next((f for f in families if f.endswith(suffix)), families[0])
    return OperationIr(family, dtype if family in WITH_DTYPE else None, op)


class GraphBindings(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """What one execution of a relative graph binds, each looked up by the placeholder that stands in the graph.

    `tensors` are pairs of relative and concrete ids, inputs before outputs; `shapes` are sizes of axes, in elements.
    """

    tensors: tuple[tuple[TensorId, TensorId], ...]
    shapes: tuple[Dim, ...]
    scalars: tuple[ScalarIr, ...]
    ranges: tuple[SliceRange, ...]


class GraphIr(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A relative graph: operations in order, the ids that come in, and those that survive."""

    operations: tuple[OperationIr, ...]
    inputs: tuple[TensorId, ...]
    outputs: tuple[TensorId, ...]
