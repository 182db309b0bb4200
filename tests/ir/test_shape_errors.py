"""What the shape rules refuse, and how they say it: field, expected, got."""

from typing import Any

import pytest

import ir
from ir import BOOL, F16, F32, I8, SliceRange
from ir.shapes import (
    Given,
)
from tests.ir.made import Q8, Q8_TWO_LEVEL, b, f, i, made

REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "conv-weight": (
        lambda: made(ir.Conv2d, f(2, 6, 32, 32), f(8, 4, 3, 3), None, groups=2),
        ir.ShapeError,
        r"Conv2d\.weight: expected shape \(8, 3, kH, kW\) for x \(2, 6, 32, 32\) with groups=2, got \(8, 4, 3, 3\)",
    ),
    "conv-bias": (
        lambda: made(ir.Conv1d, f(1, 2, 4), f(3, 2, 3), f(2)),
        ir.ShapeError,
        r"Conv1d\.bias: expected shape \(3,\) for weight \(3, 2, 3\), got \(2,\)",
    ),
    "conv-rank": (
        lambda: made(ir.Conv2d, f(1, 2, 4), f(3, 2, 3, 3), None),
        ir.ShapeError,
        r"Conv2d\.x: expected shape \(N, Cin, H, W\), got \(1, 2, 4\)",
    ),
    "conv-groups": (
        lambda: made(ir.Conv1d, f(1, 3, 4), f(4, 1, 3), None, groups=2),
        ir.ShapeError,
        r"Conv1d\.options\.groups: expected a divisor of 3, the channels of x, got 2",
    ),
    "conv-window": (
        lambda: made(ir.Conv1d, f(1, 1, 4), f(1, 1, 3), None, dilation=2),
        ir.ShapeError,
        r"Conv1d\.kernel_size: expected a window within the padded axis of 4, got one of 5",
    ),
    "conv-stride": (
        lambda: made(ir.Conv1d, f(1, 1, 4), f(1, 1, 3), None, stride=0),
        ir.ShapeError,
        r"Conv1d\.stride: expected at least 1, got 0",
    ),
    "conv-grad": (
        lambda: made(ir.Conv1dXBackward, f(1, 1, 4), f(1, 1, 3), f(1, 1, 4)),
        ir.ShapeError,
        r"Conv1dXBackward\.output_grad: expected shape \(1, 1, 2\) for x \(1, 1, 4\) and weight \(1, 1, 3\)",
    ),
    "conv-dtype": (
        lambda: made(ir.Conv1d, f(1, 1, 4), ((1, 1, 3), F16), None),
        ir.DTypeError,
        r"Conv1d\.weight: expected dtype f32, that of x, got f16; cast one of them",
    ),
    "transposed-weight": (
        lambda: made(ir.ConvTranspose1d, f(1, 3, 4), f(2, 2, 3), None),
        ir.ShapeError,
        r"ConvTranspose1d\.weight: expected shape \(3, Cout/groups, k\) for x \(1, 3, 4\), got \(2, 2, 3\)",
    ),
    "deformable-offset": (
        lambda: made(ir.DeformableConv2d, f(1, 3, 4, 4), f(1, 9, 2, 2), f(5, 3, 3, 3), None, None),
        ir.ShapeError,
        r"DeformableConv2d\.offset: expected shape \(1, 18, 2, 2\) for output \(1, 5, 2, 2\) and offset_groups=1",
    ),
    "pool-grad": (
        lambda: made(ir.AvgPool1dBackward, f(1, 1, 6), f(1, 1, 5), kernel_size=3, stride=2, padding=1),
        ir.ShapeError,
        r"AvgPool1dBackward\.grad: expected shape \(1, 1, 3\) for the output of the pool of x \(1, 1, 6\)",
    ),
    "rank": (
        lambda: made(ir.Add, f(2, 3), f(3)),
        ir.ShapeError,
        r"Add\.rhs: expected rank 2, that of \(2, 3\), got \(3,\); reshape one of them",
    ),
    "broadcast": (
        lambda: made(ir.Add, f(2, 3), f(2, 4)),
        ir.ShapeError,
        r"Add\.rhs: expected a shape that broadcasts with \(2, 3\), got \(2, 4\)",
    ),
    "dtype": (lambda: made(ir.Add, f(2), i(2)), ir.DTypeError, r"Add\.rhs: expected dtype f32, that of lhs, got i64"),
    "family": (lambda: made(ir.Sin, i(2)), ir.DTypeError, r"Sin\.input: expected a tensor of float, got i64"),
    "numeric-bool": (
        lambda: made(ir.Add, b(2), b(2)),
        ir.DTypeError,
        r"Add\.lhs: expected a tensor of float or int, got bool",
    ),
    "matmul": (
        lambda: made(ir.Matmul, f(5, 2, 3), f(5, 4, 2)),
        ir.ShapeError,
        r"Matmul\.rhs: expected shape \(\.\., 3, n\) for lhs \(5, 2, 3\), got \(5, 4, 2\)",
    ),
    "axis": (
        lambda: made(ir.Softmax, f(2), axis=1),
        ir.ShapeError,
        r"Softmax\.axis: expected an axis within 0\.\.0, got 1",
    ),
    "cast-family": (
        lambda: made(ir.Cast, f(2), given=Given(dtype=I8)),
        ir.DTypeError,
        r"Cast\.out: expected a dtype of float, as the input f32, got i8; IntoInt",
    ),
    "cast-nothing": (lambda: made(ir.Cast, f(2)), ir.DTypeError, r"Cast\.out: expected a dtype to cast to, got none"),
    "shape-nothing": (lambda: made(ir.Zeros), ir.ShapeError, r"Zeros\.out: expected a shape, .* give `out_shape`"),
    "random-bools": (
        lambda: made(ir.Random, distribution="Default", given=Given((2,), BOOL)),
        ir.DTypeError,
        r"Random\.out: expected a float or int dtype, got bool",
    ),
    "index-dtype": (
        lambda: made(ir.ArgMax, f(2), axis=0, given=Given(dtype=F32)),
        ir.DTypeError,
        r"ArgMax\.out: expected an int dtype, got f32",
    ),
    "mask": (
        lambda: made(ir.MaskFill, f(2), i(2), value=0),
        ir.DTypeError,
        r"MaskFill\.mask: expected a bool tensor, got i64",
    ),
    "indices": (
        lambda: made(ir.Gather, f(2, 3), i(1, 3), dim=1),
        ir.ShapeError,
        r"Gather\.indices: expected shape \(2, m\) for tensor \(2, 3\) along dim 1, got \(1, 3\)",
    ),
    "indices-dtype": (
        lambda: made(ir.Select, f(2, 3), f(1), dim=1),
        ir.DTypeError,
        r"Select\.indices: expected an int tensor, got f32",
    ),
    "index-depth": (
        lambda: made(ir.GatherNd, f(2, 3), i(1, 3)),
        ir.ShapeError,
        r"GatherNd\.indices: expected shape \(\.\., k\) with k <= 2 for data \(2, 3\), got \(1, 3\)",
    ),
    "slice-value": (
        lambda: made(ir.SliceAssign, f(4), f(3), ranges=[SliceRange(0, 2, 1)]),
        ir.ShapeError,
        r"SliceAssign\.value: expected shape \(2,\) for the slice of tensor \(4,\), got \(3,\)",
    ),
    "too-many-ranges": (
        lambda: made(ir.Slice, f(4), ranges=[SliceRange(0, 2, 1)] * 2),
        ir.ShapeError,
        r"Slice\.ranges: expected at most 1 ranges for \(4,\), got 2",
    ),
    "cat": (
        lambda: made(ir.Cat, [f(2, 3), f(2, 4)], dim=0),
        ir.ShapeError,
        r"Cat\.tensors\.1: expected shape \(\*, 3\) for tensors\.0 \(2, 3\) along dim 0, got \(2, 4\)",
    ),
    "cat-nothing": (lambda: made(ir.Cat, [], dim=0), ir.ShapeError, r"Cat\.tensors: expected at least one tensor"),
    "top-k": (
        lambda: made(ir.TopKWithIndices, f(2, 3), dim=1, k=4),
        ir.ShapeError,
        r"TopKWithIndices\.k: expected at most 3, the size of axis 1 of \(2, 3\), got 4",
    ),
    "max-of-nothing": (
        lambda: made(ir.MaxDim, f(2, 0), axis=1),
        ir.ShapeError,
        r"MaxDim\.axis: expected at least one element along axis 1, got \(2, 0\)",
    ),
    "int-mean-of-nothing": (
        lambda: made(ir.MeanDim, i(2, 0), axis=1),
        ir.ShapeError,
        r"MeanDim\.axis: expected at least one element along axis 1, got \(2, 0\)",
    ),
    "reflect": (
        lambda: made(ir.Pad, f(2), padding=[(2, 0)], mode="Reflect"),
        ir.ShapeError,
        r"Pad\.padding: expected less than 2 on an axis of 2 that is mirrored, got 2",
    ),
    "attention-heads": (
        lambda: made(ir.Attention, f(1, 3, 2, 2), f(1, 2, 2, 2), f(1, 2, 2, 2), None, None),
        ir.ShapeError,
        r"Attention\.key: expected a number of heads that divides 3",
    ),
    "attention-mask": (
        lambda: made(ir.Attention, f(1, 3, 2, 2), f(1, 3, 5, 2), f(1, 3, 5, 2), b(1, 1, 5, 2), None),
        ir.ShapeError,
        r"Attention\.mask: expected a shape that broadcasts to \(1, 3, 2, 5\), got \(1, 1, 5, 2\)",
    ),
    "norm": (
        lambda: made(ir.BatchNorm, f(2, 3, 4), f(3), f(3), f(4), f(3), epsilon=1e-5),
        ir.ShapeError,
        r"BatchNorm\.mean: expected shape \(3,\) for x \(2, 3, 4\), got \(4,\)",
    ),
    "linear": (
        lambda: made(ir.Linear, f(2, 3), f(2, 3), None),
        ir.ShapeError,
        r"Linear\.weight: expected shape \(3, out\) for x \(2, 3\), got \(2, 3\)",
    ),
    "ctc-blank": (
        lambda: made(ir.CtcLoss, f(5, 3, 4), i(3, 2), i(3), i(3), blank=4),
        ir.ShapeError,
        r"CtcLoss\.blank: expected a class below 4",
    ),
    "global-scale": (
        lambda: made(ir.Quantize, f(4, 8), f(1), f(1), scheme=Q8),
        ir.ShapeError,
        r"Quantize\.qparams\.global: expected none, as the scheme has one level, got one",
    ),
    "block": (
        lambda: made(ir.Quantize, f(3, 8), ((2, 2), F16), f(1), scheme=Q8_TWO_LEVEL),
        ir.ShapeError,
        r"Quantize\.scheme: expected a block that divides \(3, 8\), got \(2, 4\)",
    ),
    "dequantize": (lambda: made(ir.Dequantize, f(4)), ir.DTypeError, r"Dequantize\.input: expected a quantized tensor"),
    "custom": (
        lambda: made(ir.Custom, [f(4)], id="mine"),
        ir.ShapeError,
        r"Custom\.outputs: expected the types .* mine",
    ),
    "devices": (
        lambda: made(ir.AllReduce, f(2), op="Sum", device_ids=[ir.DeviceId(0, 0)] * 2),
        ir.ShapeError,
        r"AllReduce\.device_ids: expected one or more distinct devices",
    ),
}


@pytest.mark.parametrize(("build_it", "error", "match"), REFUSED.values(), ids=REFUSED)
def test_refused(build_it: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        build_it()
