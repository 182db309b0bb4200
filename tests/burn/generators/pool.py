"""Plans of pools."""

import math
from typing import Any

import ir
from ir.dtype import DType
from ir.op import Op
from ir.shapes import Given
from ir.shapes.formulas import pool_out
from tests.burn.draw import INTS, Dims, Draw, anything, tame, within
from tests.burn.generators import EXACT, Operand, Plan, Slack, plans


def _axes(kind: type[Op]) -> int:
    return int(kind.__name__[kind.__name__.index("Pool") + 4])


def _windows(draw: Draw, axes: int, *, dilated: bool) -> tuple[Dims, Dims, dict[str, Any]]:
    """Shape of x, number of windows per axis, and the options; padding is at most half of the kernel."""
    kernel = tuple(draw.between(1, 3) for _ in range(axes))
    stride = tuple(draw.between(1, 3) for _ in range(axes))
    padding = tuple(draw.between(0, k // 2) for k in kernel)
    dilation = tuple(draw.between(1, 2) if dilated else 1 for _ in range(axes))
    ceil = draw.below(2) == 1
    spans = [max(1, d * (k - 1) + 1 - 2 * p) for d, k, p in zip(dilation, kernel, padding, strict=True)]
    space = tuple(span + draw.below(5) for span in spans)
    out = tuple(
        pool_out(n, k, s, p, d, ceil=ceil)
        for n, k, s, p, d in zip(space, kernel, stride, padding, dilation, strict=True)
    )
    named: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "padding": padding}
    if dilated:
        named["dilation"] = dilation
    options = {name: value if axes > 1 else value[0] for name, value in named.items()}
    return (draw.pick((1, 2)), draw.pick((1, 2, 3)), *space), out, options | {"ceil_mode": ceil}


@plans(ir.AvgPool1d, ir.AvgPool2d, ir.AvgPool1dBackward, ir.AvgPool2dBackward)
def average(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Padding counted and not."""
    x, out, options = _windows(draw, _axes(kind), dilated=False)
    options["count_include_pad"] = draw.below(2) == 1
    operands = [Operand(x, dtype, tame)]
    if kind.__name__.endswith("Backward"):
        operands.append(Operand((*x[:2], *out), dtype, tame))
    return Plan(kind, tuple(operands), options, slack=Slack(ulps=2, terms=9, accumulator=dtype))


@plans(ir.MaxPool1d, ir.MaxPool2d, ir.MaxPool1dWithIndices, ir.MaxPool2dWithIndices)
def maximum(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Ties, NaN, infinities."""
    x, _, options = _windows(draw, _axes(kind), dilated=True)
    given = Given(dtype=draw.pick(INTS[:3])) if kind.__name__.endswith("Indices") else Given()
    return Plan(kind, (Operand(x, dtype, anything),), options, given, slack=EXACT)


@plans(ir.MaxPool1dWithIndicesBackward, ir.MaxPool2dWithIndicesBackward)
def maximum_backward(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Any indices, none (-1) among them."""
    x, out, options = _windows(draw, _axes(kind), dilated=True)
    shape = (*x[:2], *out)
    indices = Operand(shape, draw.pick(INTS[:3]), within(-draw.one_in(4), math.prod(x[2:]) - 1))
    operands = (Operand(x, dtype, tame), Operand(shape, dtype, tame), indices)
    return Plan(kind, operands, options, slack=Slack(ulps=2, terms=math.prod(out), accumulator=dtype))


def _space(draw: Draw, axes: int) -> Dims:
    return (draw.pick((1, 2)), draw.pick((1, 2, 3)), *(draw.pick((3, 2, 1, 5, 7)) for _ in range(axes)))


@plans(ir.AdaptiveAvgPool1d, ir.AdaptiveAvgPool2d, ir.AdaptiveAvgPool3d)
def adaptive(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """To fewer and to more elements."""
    axes = _axes(kind)
    size = tuple(draw.pick((2, 1, 3, 4)) for _ in range(axes))
    static = {"output_size": size if axes > 1 else size[0]}
    return Plan(
        kind, (Operand(_space(draw, axes), dtype, tame),), static, slack=Slack(ulps=2, terms=axes, accumulator=dtype)
    )


@plans(ir.AdaptiveAvgPool1dBackward, ir.AdaptiveAvgPool2dBackward, ir.AdaptiveAvgPool3dBackward)
def adaptive_backward(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """From fewer and from more elements."""
    axes = _axes(kind)
    x = _space(draw, axes)
    grad = (*x[:2], *(draw.pick((2, 1, 3, 4)) for _ in range(axes)))
    slack = Slack(ulps=2, terms=2 * 4**axes, accumulator=dtype)
    return Plan(kind, (Operand(x, dtype, tame), Operand(grad, dtype, tame)), slack=slack)
