"""Quantization. Source: burn-ir `FloatOperationIr`."""

from msgspec import field

from ir.dtype import QuantScheme
from ir.op import In, Op, OptIn, Out
from ir.records import Record
from ir.registry import FLOAT, kind


class QuantizationParameters(Record):
    """Scales, one per block or one in all, and the scale of the scales of a two-level scheme."""

    scales: In
    global_: OptIn = field(name="global")


@kind(*FLOAT)
class Quantize(Op):
    """The float `tensor` quantized by `scheme` with the scales of `qparams`."""

    tensor: In
    qparams: QuantizationParameters
    scheme: QuantScheme
    out: Out


@kind(*FLOAT)
class Dequantize(Op):
    """The floats that the quantized `input` stands for."""

    input: In
    out: Out
