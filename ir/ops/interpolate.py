"""Resampling. Source: burn-ir `ModuleOperationIr` and `FloatOperationIr`."""

from ir.dtype import Dim, StrEnum
from ir.op import In, Op, Out
from ir.records import Record
from ir.registry import FLOAT, MODULE, kind


class InterpolateMode(StrEnum):
    """How values between the samples are made."""

    Nearest = "Nearest"
    NearestExact = "NearestExact"
    Bilinear = "Bilinear"
    Bicubic = "Bicubic"
    Lanczos3 = "Lanczos3"


class GridSamplePaddingMode(StrEnum):
    """What lies outside of the input."""

    Zeros = "Zeros"
    Border = "Border"
    Reflection = "Reflection"


class InterpolateOptions(Record):
    """Mode, and whether the corner samples stay at the corners."""

    mode: InterpolateMode
    align_corners: bool


class GridSampleOptions(Record):
    """Mode, padding, and whether -1 and 1 are the centres of the corner samples (else the borders)."""

    mode: InterpolateMode
    padding_mode: GridSamplePaddingMode
    align_corners: bool


@kind(*MODULE)
class Interpolate(Op):
    """x (N, C, H, W) resampled to out (N, C, *output_size)."""

    x: In
    output_size: tuple[Dim, Dim]
    options: InterpolateOptions
    out: Out


@kind(*MODULE)
class InterpolateBackward(Op):
    """Gradient of `Interpolate`."""

    x: In
    grad: In
    output_size: tuple[Dim, Dim]
    options: InterpolateOptions
    out: Out


@kind(*FLOAT)
class GridSample2d(Op):
    """`tensor` (N, C, H, W) sampled at `grid` (N, oH, oW, 2), (x, y) pairs within -1..1 -> out (N, C, oH, oW)."""

    tensor: In
    grid: In
    options: GridSampleOptions
    out: Out
