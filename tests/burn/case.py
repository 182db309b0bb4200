"""A generated case: an operation with its tensors, some used for the last time, some aliased, some dropped after it."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np

import ir
from ir.build import build_typed, build_with
from ir.errors import IrError
from ir.op import Op, operand_dtype
from ir.operation import OperationIr
from ir.ops.control import Drop, Init
from ir.registry import WITH_DTYPE, Form
from ir.shapes.rules import output_names
from ir.tensor import TensorData, TensorIr
from jax_backend import host
from tests.burn.draw import Draw
from tests.burn.generators import Again, Later, Operand, Plan

IDS_PER_CASE = 64
ALIASES_FROM = 48
"""Ids of a case: operands and outputs from 0, aliases from here."""

Array: TypeAlias = np.ndarray


class Case(NamedTuple):
    """An operation with its tensors; `draw` made its elements."""

    form: Form
    plan: Plan
    operation: OperationIr
    tensors: dict[int, TensorData]
    aliases: tuple[tuple[int, int], ...]
    drops: tuple[TensorIr, ...]
    reads: tuple[TensorIr, ...]

    @property
    def op(self) -> Op:
        """The operation without its outer variant."""
        return self.operation.op

    def inputs(self) -> list[Array]:
        """The elements of the operands, floats as float64, in declared order."""
        arrays = [host.to_numpy(self.tensors[t.id.value]) for t in self.op.inputs if t.id.value in self.tensors]
        return [a.astype(np.float64) if a.dtype.kind in "fV" else a for a in arrays]

    def ids(self) -> set[int]:
        """Every id that the case names."""
        described = [t.id.value for t in (*self.op.inputs, *self.op.outputs)]
        return {*self.tensors, *described, *(new for new, _ in self.aliases)}


def fill(form: Form, structure: Plan, draw: Draw, base: int) -> Case:
    """A case of `structure` with elements, scalars, statuses and aliases from `draw`; its ids start at `base`."""
    tensors: dict[int, TensorData] = {}
    operands: list[Any] = []
    flat: list[TensorIr] = []

    def described(operand: Operand) -> TensorIr:
        made = operand.content(draw, operand.dims, operand.dtype)
        id = base + len(tensors)
        data = host.from_numpy(made, operand.dtype)
        tensors[id] = TensorData(data.bytes, operand.dims, operand.dtype)
        status = ir.READ_WRITE if draw.one_in(4) else ir.READ_ONLY
        flat.append(ir.tensor(id, operand.dims, operand.dtype, status))
        return flat[-1]

    for operand in structure.operands:
        if isinstance(operand, Again):  # the last use carries ReadWrite, as Burn's clients write it
            first = operands[operand.place]
            operands[operand.place] = ir.tensor(first.id.value, first.shape.dims, first.dtype)
            operands.append(first)
        elif isinstance(operand, tuple):
            operands.append([described(o) for o in operand])
        else:
            operands.append(None if operand is None else described(operand))
    static = {name: v.make(draw) if isinstance(v, Later) else v for name, v in structure.static.items()}
    op = _operation(structure, operands, flat, static, base)
    aliases = tuple((base + ALIASES_FROM + n, t.id.value) for n, t in enumerate(flat) if draw.one_in(8) and n < 8)
    drops = tuple(t for t in flat if draw.one_in(8)) if structure.kind is not Drop else ()
    last = ir.READ_WRITE if draw.one_in(4) else ir.READ_ONLY
    gone = {t.id.value for t in drops}
    reads = [ir.tensor(t.id.value, t.shape.dims, t.dtype, last) for t in op.outputs if t.id.value not in gone]
    by_id = {t.id.value: t for t in flat}
    reads += [ir.tensor(new, by_id[source].shape.dims, by_id[source].dtype) for new, source in aliases]
    hint = operand_dtype(op) if form.family in WITH_DTYPE else None
    return Case(form, structure, OperationIr(form.family, hint, op), tensors, aliases, drops, tuple(reads))


def _operation(structure: Plan, operands: list[Any], flat: list[TensorIr], static: dict[str, Any], base: int) -> Op:
    """The operation; where the shape rule refuses it, with outputs like its first operand, for Burn to judge."""
    if structure.kind is Init:
        return Init(ir.tensor(flat[0].id.value, flat[0].shape.dims, flat[0].dtype, ir.NOT_INIT))
    new_ids = iter(range(base + len(flat), base + ALIASES_FROM))
    try:
        return build_typed(structure.kind, operands, lambda: next(new_ids), static, structure.given)[0]
    except IrError:
        kinds = output_names(structure.kind)
        like = flat[0]
        dtype = structure.given.dtype or like.dtype
        outputs = [ir.tensor(base + len(flat) + n, like.shape.dims, dtype, ir.NOT_INIT) for n in range(len(kinds))]
        return build_with(structure.kind, operands, outputs, static)
