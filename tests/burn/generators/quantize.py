"""Plans of quantization."""

import math

import numpy as np

import ir
from ir.dtype import DType, NativeStore, QuantMode, QuantScheme, QuantValue, ScaleDtype, qfloat
from ir.op import Op
from ir.shapes import Given
from tests.burn.draw import Dims, Draw, dims, finite, real
from tests.burn.generators import Operand, Plan, Slack, plans

SCHEME = QuantScheme(QuantValue.Q8S, NativeStore.Native, QuantMode.Symmetric, ScaleDtype.F32, None)


@plans(ir.Quantize)
def quantize(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """By one scale."""
    operands = (Operand(dims(draw), ir.F32, finite), Operand((1,), ir.F32, real(0.01, 1)), None)
    return Plan(kind, operands, {"scheme": SCHEME}, Given(dtype=qfloat(SCHEME)))


def _quantized(draw: Draw, dims: Dims, dtype: DType) -> np.ndarray:
    """Data as it travels: a byte per element, then the scale."""
    values = draw.many(math.prod(dims), 255).astype(np.uint8)
    return np.concatenate([values, np.array([0.25], np.float32).view(np.uint8)])


@plans(ir.Dequantize)
def dequantize(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """By one scale."""
    return Plan(kind, (Operand((2, 3), qfloat(SCHEME), _quantized),), given=Given(dtype=dtype), slack=Slack(ulps=2))
