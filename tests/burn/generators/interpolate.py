"""Plans of resampling."""

import ir
from ir.dtype import DType
from ir.op import Op
from ir.ops.interpolate import GridSamplePaddingMode, InterpolateMode
from tests.burn.draw import Draw, finite, real, tame
from tests.burn.generators import Operand, Plan, Slack, plans

MODES = tuple(InterpolateMode)


def _slack(dtype: DType, terms: int) -> Slack:
    return Slack(ulps=16, terms=terms, accumulator=dtype)


@plans(ir.Interpolate, ir.InterpolateBackward)
def interpolate(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Every mode, to smaller and to larger images."""
    x = (draw.pick((1, 2)), draw.pick((1, 2)), draw.pick((3, 2, 1, 5, 7)), draw.pick((4, 2, 1, 6)))
    size = (draw.pick((2, 3, 1, 6, 9)), draw.pick((3, 4, 1, 7)))
    static = {"output_size": size, "mode": draw.pick(MODES), "align_corners": draw.below(2) == 1}
    operands = [Operand(x, dtype, tame)]
    if kind is ir.InterpolateBackward:
        operands.append(Operand((*x[:2], *size), dtype, tame))
    return Plan(kind, tuple(operands), static, slack=_slack(dtype, 64))


@plans(ir.GridSample2d)
def grid_sample(draw: Draw, kind: type[Op], dtype: DType) -> Plan:
    """Every mode and padding; points in and out of the image."""
    tensor = (draw.pick((1, 2)), draw.pick((1, 2)), draw.pick((3, 2, 1, 5)), draw.pick((4, 2, 1)))
    grid = (tensor[0], draw.pick((2, 1, 3)), draw.pick((3, 1, 2)), 2)
    static = {
        "mode": draw.pick((InterpolateMode.Bilinear, InterpolateMode.Nearest)),
        "padding_mode": draw.pick(tuple(GridSamplePaddingMode)),
        "align_corners": draw.below(2) == 1,
    }
    operands = (Operand(tensor, dtype, finite), Operand(grid, dtype, real(-1.9, 1.9)))
    return Plan(kind, operands, static, slack=_slack(dtype, 8))
