"""Plans of what is no computation, and of the collectives."""

import ir
from ir.dtype import DType
from ir.op import Op
from ir.ops.control import DeviceId, ReduceOperation
from ir.shapes import Given
from ir.shapes.rules import TensorType
from tests.burn.draw import Draw, dims
from tests.burn.generators import MOVED, Operand, Plan, plans


@plans(ir.Init, ir.Drop)
def handle(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """A tensor that is announced, or forgotten."""
    return Plan(kind, (Operand(dims(draw), dtype),), slack=MOVED)


@plans(ir.Custom)
def custom(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """The transform that Burn's clients send."""
    out = TensorType((2, 3), dtype)
    static = {"id": "signal::rfft", "scalars": ({"UInt": 1}, {"Bool": False}, {"UInt": 0})}
    return Plan(kind, ((Operand((2, 4), dtype),),), static, Given(types=(out, out)))


@plans(ir.AllReduce)
def all_reduce(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """With nobody else."""
    static = {"op": draw.pick(tuple(ReduceOperation)), "device_ids": (DeviceId(0, 0),)}
    return Plan(kind, (Operand(dims(draw), dtype),), static, slack=MOVED)


@plans(ir.SyncCollective)
def sync_collective(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Nothing to wait for."""
    return Plan(kind, ())
