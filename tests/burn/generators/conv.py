"""Plans of convolutions, their transposes and gradients, and of window extraction."""

import math
from typing import Any, NamedTuple

import ir
from ir.dtype import DType
from ir.op import Op
from tests.burn.draw import Dims, Draw, anything, finite, real, tame
from tests.burn.generators import Operand, Plan, Slack, plans

CONV = {1: ir.Conv1d, 2: ir.Conv2d, 3: ir.Conv3d}
CONV_X = {1: ir.Conv1dXBackward, 2: ir.Conv2dXBackward, 3: ir.Conv3dXBackward}
CONV_WEIGHT = {1: ir.Conv1dWeightBackward, 2: ir.Conv2dWeightBackward, 3: ir.Conv3dWeightBackward}
CONV_BIAS = {1: ir.Conv1dBiasBackward, 2: ir.Conv2dBiasBackward, 3: ir.Conv3dBiasBackward}
TRANSPOSE = {1: ir.ConvTranspose1d, 2: ir.ConvTranspose2d, 3: ir.ConvTranspose3d}
TRANSPOSE_WEIGHT = {
    1: ir.ConvTranspose1dWeightBackward,
    2: ir.ConvTranspose2dWeightBackward,
    3: ir.ConvTranspose3dWeightBackward,
}
TRANSPOSE_BIAS = {
    1: ir.ConvTranspose1dBiasBackward,
    2: ir.ConvTranspose2dBiasBackward,
    3: ir.ConvTranspose3dBiasBackward,
}


def _axes(kind: type[Op]) -> int:
    return int(kind.__name__[kind.__name__.index("d", 3) - 1])


class Layer(NamedTuple):
    """The shapes of a convolution, and its options as `build` takes them."""

    x: Dims
    weight: Dims
    out: Dims
    channels: int
    options: dict[str, Any]
    terms: int


def _layer(draw: Draw, axes: int) -> Layer:
    """Stride, padding that differs by side, dilation and groups; the kernel fits."""
    groups = draw.pick((1, 1, 2, 3))
    cin, cout = groups * draw.pick((1, 2)), groups * draw.pick((1, 2, 3))
    batch = 0 if draw.one_in(30) else draw.pick((1, 2))
    largest = 3 if axes < 3 else 2
    kernel = tuple(draw.between(1, largest) for _ in range(axes))
    stride = tuple(draw.between(1, 3) for _ in range(axes))
    dilation = tuple(draw.between(1, 2) for _ in range(axes))
    pads = tuple((draw.below(3), draw.below(3)) for _ in range(axes))
    if axes == 3 or draw.below(2):
        pads = tuple((before, before) for before, _ in pads)
    space: list[int] = []
    for k, d, (before, after) in zip(kernel, dilation, pads, strict=True):
        space.append(max(1, d * (k - 1) + 1 - before - after) + draw.below(5 if axes < 3 else 3))
    out = tuple(
        (n + sum(pad) - d * (k - 1) - 1) // s + 1
        for n, k, s, d, pad in zip(space, kernel, stride, dilation, pads, strict=True)
    )
    padding = tuple(before for before, _ in pads) if axes == 3 else pads
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    terms = max(math.prod(kernel) * cin // groups * cout, batch * math.prod(out))
    return Layer((batch, cin, *space), (cout, cin // groups, *kernel), (batch, cout, *out), cout, options, terms)


def _transposed(draw: Draw, axes: int) -> Layer:
    """The same for a transposed convolution, with cells added at the end."""
    groups = draw.pick((1, 1, 2))
    cin, cout = groups * draw.pick((1, 2)), groups * draw.pick((1, 2))
    batch = draw.pick((1, 2))
    kernel = tuple(draw.between(1, 3 if axes < 3 else 2) for _ in range(axes))
    stride = tuple(draw.between(1, 3) for _ in range(axes))
    dilation = tuple(draw.between(1, 2) for _ in range(axes))
    extra = tuple(draw.below(3) for _ in range(axes))
    space = tuple(draw.between(1, 4 if axes < 3 else 2) for _ in range(axes))
    most = [(n - 1) * s + d * (k - 1) for n, s, d, k in zip(space, stride, dilation, kernel, strict=True)]
    padding = tuple(draw.between(0, min(2, m // 2)) for m in most)
    out = tuple(m + 1 + e - 2 * p for m, e, p in zip(most, extra, padding, strict=True))
    options = {"stride": stride, "padding": padding, "padding_out": extra, "dilation": dilation, "groups": groups}
    terms = max(math.prod(kernel) * cin, batch * math.prod(space))
    return Layer((batch, cin, *space), (cin, cout // groups, *kernel), (batch, cout, *out), cout, options, terms)


def _slack(dtype: DType, terms: int) -> Slack:
    """A product that halves may round once before a bias is added."""
    return Slack(ulps=2, terms=terms, accumulator=dtype)


@plans(*CONV.values(), *TRANSPOSE.values())
def forward(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """With and without a bias."""
    layer = (_layer if kind in CONV.values() else _transposed)(draw, _axes(kind))
    bias = Operand((layer.channels,), dtype, tame) if draw.below(2) else None
    operands = (Operand(layer.x, dtype, tame), Operand(layer.weight, dtype, tame), bias)
    return Plan(kind, operands, layer.options, slack=_slack(dtype, layer.terms + 1))


@plans(*CONV_X.values(), *CONV_WEIGHT.values(), *TRANSPOSE_WEIGHT.values())
def backward(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any gradient of the output."""
    layer = (_transposed if kind in TRANSPOSE_WEIGHT.values() else _layer)(draw, _axes(kind))
    operands = tuple(Operand(shape, dtype, tame) for shape in (layer.x, layer.weight, layer.out))
    return Plan(kind, operands, layer.options, slack=_slack(dtype, layer.terms))


@plans(*CONV_BIAS.values(), *TRANSPOSE_BIAS.values())
def bias_backward(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any gradient of the output."""
    layer = (_layer if kind in CONV_BIAS.values() else _transposed)(draw, _axes(kind))
    operands = tuple(Operand(shape, dtype, tame) for shape in (layer.x, (layer.channels,), layer.out))
    return Plan(kind, operands, slack=_slack(dtype, layer.terms))


@plans(ir.Unfold4d)
def unfold4d(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Windows with stride, padding and dilation. Burn's convolution makes 0.0 of -0.0."""
    layer = _layer(draw, 2)
    padding = tuple(before for before, _ in layer.options["padding"])
    spans = [
        d * (k - 1) + 1 - 2 * p for d, k, p in zip(layer.options["dilation"], layer.weight[2:], padding, strict=True)
    ]
    x = (*layer.x[:2], *(max(n, span, 1) for n, span in zip(layer.x[2:], spans, strict=True)))
    static = {
        "kernel_size": layer.weight[2:],
        "stride": layer.options["stride"],
        "padding": padding,
        "dilation": layer.options["dilation"],
    }
    return Plan(kind, (Operand(x, dtype, finite if draw.below(4) else anything),), static)


@plans(ir.DeformableConv2d, ir.DeformableConv2dBackward)
def deformable(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Groups of weights and of offsets, with and without mask and bias."""
    weight_groups, offset_groups = draw.pick((1, 2)), draw.pick((1, 2))
    cin, cout = 2 * draw.pick((1, 2)), weight_groups * draw.pick((1, 2))
    batch, kernel = draw.pick((1, 2)), (draw.between(1, 3), draw.between(1, 2))
    stride, padding, dilation = ((draw.between(low, low + 1), draw.between(low, low + 1)) for low in (1, 0, 1))
    space = tuple(
        max(1, d * (k - 1) + 1 - 2 * p) + draw.below(4) for d, k, p in zip(dilation, kernel, padding, strict=True)
    )
    out = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, d, p in zip(space, kernel, stride, dilation, padding, strict=True)
    )
    taps = offset_groups * math.prod(kernel)
    operands = [
        Operand((batch, cin, *space), dtype, finite),
        Operand((batch, 2 * taps, *out), dtype, real(-1.7, 1.9)),
        Operand((cout, cin // weight_groups, *kernel), dtype, finite),
        Operand((batch, taps, *out), dtype, real(0, 1)) if draw.below(2) else None,
        Operand((cout,), dtype, finite) if draw.below(2) else None,
    ]
    if kind is ir.DeformableConv2dBackward:
        operands.append(Operand((batch, cout, *out), dtype, finite))
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    options |= {"weight_groups": weight_groups, "offset_groups": offset_groups}
    terms = 8 * max(cin * math.prod(kernel), cout * taps, batch * math.prod(out))
    # Burn works in f32 whatever the dtype, and rounds halves in between.
    slack = Slack(ulps=16, terms=terms, accumulator=ir.F32 if dtype is ir.F64 else dtype)
    return Plan(kind, tuple(operands), options, slack=slack)
