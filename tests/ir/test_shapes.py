"""`ir.shapes` and `ir.build`: every kind has a rule, in agreement with every row of every table and values by hand."""

from itertools import count
from typing import Any

import pytest

import ir
from ir import BF16, BOOL, BOOL_U8, F16, F32, F64, I8, I32, I64, U8, SliceRange, scalar, tensor
from ir.build import build, input_names, parameters
from ir.dtype import (
    BlockScale,
    BlockSize,
    DType,
    NativeStore,
    PackedStore,
    QuantMode,
    QuantScheme,
    QuantValue,
    ScaleDtype,
    qfloat,
)
from ir.op import values
from ir.shapes import (
    NOTHING,
    Dims,
    Given,
    TensorType,
    assert_complete,
    declared,
    infer,
    pool_out,
    pool_out_undropped,
    rule_of,
)
from ir.shapes import type_of as type_of_tensor
from ir.shapes.base import permute_scheme
from ir.shapes.rules import family_of, shape_rule
from tests import cases as tables

Input = tuple[Dims, DType] | None
SHAPE_IS_GIVEN = {
    *(ir.Reshape, ir.Expand, ir.Full, ir.Zeros, ir.Ones, ir.Empty, ir.Random, ir.IntRandom, ir.Init, ir.Custom)
}


def made(kind: type[ir.Op], *inputs: Input | list[Input], given: Given = NOTHING, **static: Any) -> list[TensorType]:
    """Types of the outputs of `kind` on inputs of these types."""
    number = count()

    def described(item: Any) -> Any:
        if isinstance(item, list):
            return [described(i) for i in item]
        return None if item is None else tensor(next(number), *item)

    op = build(kind, [described(i) for i in inputs], lambda: 99, static, given)
    return [type_of_tensor(t) for t in op.outputs]


def f(*dims: int) -> Input:
    return dims, F32


def i(*dims: int) -> Input:
    return dims, I64


def b(*dims: int) -> Input:
    return dims, BOOL


# ---- every kind


def test_every_kind_has_a_rule() -> None:
    assert [kind.__name__ for kind in ir.kinds() if rule_of(kind) is None] == []
    assert len(ir.kinds()) == 211


def test_a_kind_without_a_rule_is_named() -> None:
    class Unruled(ir.Op):
        """No kind at all."""

    with pytest.raises(RuntimeError, match="kinds without a shape rule: Unruled"):
        assert_complete([ir.Add, Unruled])


def test_a_second_rule_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Matmul has a shape rule already"):
        shape_rule(ir.Matmul)(lambda op, given: ())


def output_types(op: ir.Op) -> tuple[TensorType | None, ...]:
    """The declared outputs, field by field."""
    outputs = [value for field, value in values(op) if field.is_output]
    flat = [t for value in outputs for t in (value if isinstance(value, tuple) else (value,))]
    return tuple(None if t is None else type_of_tensor(t) for t in flat)


@pytest.mark.parametrize("family", tables.families())
def test_rules_agree_with_every_row(family: str) -> None:
    rows = tables.cases(family)
    assert [row.id for row in rows if infer(row.op, declared(row.op)) != output_types(row.op)] == []


@pytest.mark.parametrize("family", tables.families())
def test_shapes_follow_from_the_inputs_alone(family: str) -> None:
    rows = [row for row in tables.cases(family) if type(row.op) not in SHAPE_IS_GIVEN]
    wrong: list[str] = []
    for row in rows:
        said = declared(row.op)
        # An older client may have counted more windows than later ones do.
        given = Given(
            dims=said.dims if getattr(row.op, "ceil_mode", False) else None,
            dtype=said.dtype if isinstance(row.op, ir.Cast) else None,
        )
        found = [t and (t.dims, family_of(t.dtype)) for t in infer(row.op, given)]
        if found != [t and (t.dims, family_of(t.dtype)) for t in output_types(row.op)]:
            wrong.append(row.id)
    assert wrong == []


# ---- values by hand

Q8 = QuantScheme(QuantValue.Q8S, NativeStore.Native, QuantMode.Symmetric, ScaleDtype.F32, None)
BLOCKS = BlockScale(BlockSize((2, 4, 1, 1, 1), 2), ScaleDtype.F16)
Q8_TWO_LEVEL = QuantScheme(QuantValue.Q8S, NativeStore.Native, QuantMode.Symmetric, ScaleDtype.F32, BLOCKS)

ONE_OUTPUT: dict[str, tuple[list[TensorType], Dims, DType]] = {
    "broadcast-empty": (made(ir.Add, f(2, 0), f(2, 1)), (2, 0), F32),
    "scalar-keeps-dtype": (made(ir.AddScalar, ((3,), I8), rhs=0.5), (3,), I8),
    "comparison": (made(ir.Greater, f(2, 1), f(1, 3)), (2, 3), BOOL),
    "comparison-store": (made(ir.EqualElem, f(2), rhs=1, given=Given(dtype=BOOL_U8)), (2,), BOOL_U8),
    "logic-keeps-store": (made(ir.And, ((2,), BOOL_U8), ((2,), BOOL_U8)), (2,), BOOL_U8),
    "reshape-empty": (made(ir.Reshape, f(0, 3), given=Given((3, 0, 7))), (3, 0, 7), F32),
    "expand-to-nothing": (made(ir.Expand, f(1, 3), given=Given((0, 3))), (0, 3), F32),
    "permute": (made(ir.Permute, f(2, 3, 5), axes=[2, 0, 1]), (5, 2, 3), F32),
    "swap-dims": (made(ir.SwapDims, f(2, 3, 5), dim1=0, dim2=-1), (5, 3, 2), F32),
    "unfold": (made(ir.Unfold, f(3, 7), dim=1, size=3, step=2), (3, 3, 3), F32),
    "unfold-window-too-large": (made(ir.Unfold, f(3, 2), dim=1, size=3, step=2), (3, 0, 3), F32),
    "slice": (made(ir.Slice, f(10, 5), ranges=[SliceRange(1, 8, -3), SliceRange(-2, None, 1)]), (3, 2), F32),
    "slice-beyond": (made(ir.Slice, f(3), ranges=[SliceRange(0, 4, 1)]), (3,), F32),
    "slice-nothing": (made(ir.Slice, f(10), ranges=[SliceRange(3, -20, 1)]), (0,), F32),
    "mask-where-grows": (made(ir.MaskWhere, f(1, 2, 2), b(4, 2, 2), f(1, 1, 2)), (4, 2, 2), F32),
    "repeat-none": (made(ir.RepeatDim, f(2, 3), dim=1, times=0), (2, 0), F32),
    "cat-empty-part": (made(ir.Cat, [f(1, 3), f(1, 0)], dim=1), (1, 3), F32),
    "all": (made(ir.All, i(2, 3)), (1,), BOOL),
    "any-dim": (made(ir.AnyDim, i(2, 3), axis=0), (1, 3), BOOL),
    "select-none": (made(ir.Select, f(2, 3), i(0), dim=1), (2, 0), F32),
    "gather": (made(ir.Gather, f(2, 3), i(2, 4), dim=1), (2, 4), F32),
    "gather-nd": (made(ir.GatherNd, f(2, 3, 5), i(7, 2)), (7, 5), F32),
    "gather-nd-whole": (made(ir.GatherNd, f(2, 3), i(7, 0)), (7, 2, 3), F32),
    "gather-nd-rank-0": (made(ir.GatherNd, f(2, 3), i(2)), (), F32),
    "scatter-nd": (made(ir.ScatterNd, f(2, 3), i(7, 1), f(7, 3), reduction="Add"), (2, 3), F32),
    "sum": (made(ir.Sum, f(2, 3)), (1,), F32),
    "sum-empty-axis": (made(ir.SumDim, f(3, 0), axis=1), (3, 1), F32),
    "sum-dims-twice": (made(ir.SumDims, f(2, 3, 5), axes=[1, 1, 2]), (2, 1, 1), F32),
    "max-of-nothing-beside": (made(ir.MaxDim, f(0, 3), axis=1), (0, 1), F32),
    "arg-max": (made(ir.ArgMax, f(2, 3), axis=-1), (2, 1), I32),
    "arg-max-dtype": (made(ir.ArgMax, ((2, 3), I8), axis=1, given=Given(dtype=I8)), (2, 1), I8),
    "top-k-none": (made(ir.TopK, f(2, 3), axis=1, accumulator_len=0), (2, 0), F32),
    "pad": (made(ir.Pad, f(3, 3), padding=[(1, 2), (2, 1)], mode="Reflect"), (6, 6), F32),
    "into-int": (made(ir.IntoInt, f(3)), (3,), I32),
    "into-float": (made(ir.IntoFloat, b(3), given=Given(dtype=BF16)), (3,), BF16),
    "matmul-batch": (made(ir.Matmul, f(1, 2, 2), f(2, 2, 3)), (2, 2, 3), F32),
    "matmul-k-0": (made(ir.Matmul, f(2, 0), f(0, 3)), (2, 3), F32),
    "matmul-mixed-floats": (made(ir.Matmul, ((2, 3), F16), f(3, 2)), (2, 2), F16),
    "matmul-quantized": (made(ir.Matmul, ((2, 3), F16), ((3, 2), qfloat(Q8))), (2, 2), F16),
    "cross": (made(ir.Cross, f(2, 3), f(1, 3), dim=1), (2, 3), F32),
    "conv1d": (made(ir.Conv1d, f(2, 3, 4), f(4, 3, 3), None, padding=1, stride=2), (2, 4, 2), F32),
    "conv1d-pairs": (made(ir.Conv1d, f(1, 1, 5), f(1, 1, 3), f(1), padding=[(0, 3)], stride=2), (1, 1, 3), F32),
    "conv2d-groups": (
        made(ir.Conv2d, f(1, 2, 1, 2), f(32, 1, 1, 8), None, padding=[(0, 0), (4, 4)], groups=2),
        (1, 32, 1, 3),
        F32,
    ),
    "conv3d": (made(ir.Conv3d, f(1, 2, 5, 6, 7), f(3, 2, 2, 2, 2), f(3), dilation=2), (1, 3, 3, 4, 5), F32),
    "conv1d-x-backward": (made(ir.Conv1dXBackward, f(1, 1, 10), f(1, 1, 4), f(1, 1, 2), stride=4), (1, 1, 10), F32),
    "conv2d-bias-backward": (made(ir.Conv2dBiasBackward, f(1, 2, 3, 3), f(5), f(1, 5, 2, 2)), (5,), F32),
    "conv-transpose1d": (
        made(ir.ConvTranspose1d, f(1, 2, 4), f(2, 2, 3), None, padding=1, padding_out=1, stride=2),
        (1, 2, 8),
        F32,
    ),
    "conv-transpose2d-groups": (
        made(ir.ConvTranspose2d, f(1, 2, 2, 2), f(2, 3, 3, 3), f(6), groups=2),
        (1, 6, 4, 4),
        F32,
    ),
    "deformable": (
        made(ir.DeformableConv2d, f(1, 3, 4, 4), f(1, 18, 2, 2), f(5, 3, 3, 3), f(1, 9, 2, 2), f(5)),
        (1, 5, 2, 2),
        F32,
    ),
    "unfold4d": (made(ir.Unfold4d, f(1, 2, 4, 4), kernel_size=[2, 2]), (1, 8, 9), F32),
    "unfold4d-options": (
        made(ir.Unfold4d, f(1, 2, 3, 4), kernel_size=[2, 3], padding=[0, 1], stride=[1, 2], dilation=[1, 2]),
        (1, 12, 2),
        F32,
    ),
    "avg-pool1d-ceil": (
        made(ir.AvgPool1d, f(1, 1, 6), kernel_size=3, stride=2, padding=1, ceil_mode=True),
        (1, 1, 4),
        F32,
    ),
    "max-pool2d-ceil": (
        made(ir.MaxPool2d, f(1, 1, 5, 5), kernel_size=3, stride=2, padding=1, ceil_mode=True),
        (1, 1, 3, 3),
        F32,
    ),
    "adaptive-grows": (made(ir.AdaptiveAvgPool1d, f(1, 2, 4), output_size=8), (1, 2, 8), F32),
    "interpolate": (
        made(ir.Interpolate, f(1, 2, 4, 4), output_size=[8, 3], mode="Bilinear", align_corners=False),
        (1, 2, 8, 3),
        F32,
    ),
    "grid-sample": (
        made(ir.GridSample2d, f(2, 3, 5, 7), f(2, 4, 6, 2), mode="Nearest", padding_mode="Zeros", align_corners=True),
        (2, 3, 4, 6),
        F32,
    ),
    "attention-grouped": (
        made(ir.Attention, f(2, 6, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 8), b(1, 1, 5, 7), None),
        (2, 6, 5, 8),
        F32,
    ),
    "layer-norm": (made(ir.LayerNorm, f(2, 3), f(3), None, epsilon=1e-5), (2, 3), F32),
    "linear-rank-1": (made(ir.Linear, f(2), f(2, 3), f(3)), (3,), F32),
    "linear-weight-backward": (made(ir.LinearWeightBackward, f(2, 5, 3), f(2, 5, 7)), (3, 7), F32),
    "embedding": (made(ir.Embedding, f(10, 4), i(2, 3)), (2, 3, 4), F32),
    "irfft": (made(ir.IRfft, f(3, 5), f(3, 5), dim=1), (3, 8), F32),
    "irfft-single-bin": (made(ir.IRfft, f(3, 1), f(3, 1), dim=1), (3, 0), F32),
    "ctc": (made(ir.CtcLoss, f(5, 3, 4), i(3, 2), i(3), i(3), blank=0), (3,), F32),
    "quantize": (made(ir.Quantize, f(4, 8), f(1), None, scheme=Q8), (4, 8), qfloat(Q8)),
    "quantize-two-level": (
        made(ir.Quantize, f(4, 8), ((2, 2), F16), f(1), scheme=Q8_TWO_LEVEL),
        (4, 8),
        qfloat(Q8_TWO_LEVEL),
    ),
    "dequantize": (made(ir.Dequantize, ((4,), qfloat(Q8)), given=Given(dtype=F64)), (4,), F64),
    "custom-irfft": (
        made(ir.Custom, [f(3, 5), f(3, 5)], id="signal::irfft", scalars=[scalar(1), scalar(True), scalar(6)]),
        (3, 6),
        F32,
    ),
    "all-reduce": (made(ir.AllReduce, f(2), op="Sum", device_ids=[ir.DeviceId(0, 0), ir.DeviceId(0, 1)]), (2,), F32),
}


@pytest.mark.parametrize(("got", "dims", "dtype"), ONE_OUTPUT.values(), ids=ONE_OUTPUT)
def test_one_output(got: list[TensorType], dims: Dims, dtype: DType) -> None:
    assert got == [TensorType(dims, dtype)]


SEVERAL_OUTPUTS = {
    "top-k": (made(ir.TopKWithIndices, f(2, 5), dim=1, k=3, given=Given(dtype=I64)), [((2, 3), F32), ((2, 3), I64)]),
    "max-dim": (made(ir.MaxDimWithIndices, f(2, 5), dim=0), [((1, 5), F32), ((1, 5), I32)]),
    "sort": (made(ir.SortWithIndices, f(2, 5), dim=0), [((2, 5), F32), ((2, 5), I32)]),
    "max-pool": (
        made(ir.MaxPool1dWithIndices, f(1, 2, 5), kernel_size=2, stride=2, padding=1),
        [((1, 2, 3), F32), ((1, 2, 3), I32)],
    ),
    "rfft": (made(ir.Rfft, ((3, 8), F64), dim=1, n=5), [((3, 3), F64), ((3, 3), F64)]),
    "svd": (
        made(ir.Custom, [f(2, 5, 3)], id="linalg::svd", scalars=[scalar(8), scalar(False)]),
        [((2, 5, 3), F32), ((2, 3), F32), ((2, 3, 3), F32)],
    ),
    "svd-swapped": (
        made(ir.Custom, [f(2, 5, 3)], id="linalg::svd", scalars=[scalar(8), scalar(True)]),
        [((2, 3, 3), F32), ((2, 3), F32), ((2, 3, 5), F32)],
    ),
    "custom": (
        made(ir.Custom, [f(2)], id="mine", given=Given(types=(TensorType((3,), F32), TensorType((), I8)))),
        [((3,), F32), ((), I8)],
    ),
    "deformable-backward-without-mask": (
        made(ir.DeformableConv2dBackward, f(1, 3, 4, 4), f(1, 18, 2, 2), f(5, 3, 3, 3), None, f(5), f(1, 5, 2, 2)),
        [((1, 3, 4, 4), F32), ((1, 18, 2, 2), F32), ((5, 3, 3, 3), F32), ((5,), F32)],
    ),
    "drop": (made(ir.Drop, f(2)), []),
    "sync": (made(ir.SyncCollective), []),
}


@pytest.mark.parametrize(("got", "want"), SEVERAL_OUTPUTS.values(), ids=SEVERAL_OUTPUTS)
def test_several_outputs_or_none(got: list[TensorType], want: list[tuple[Dims, DType]]) -> None:
    assert got == want


# ---- what is refused

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


# ---- details


@pytest.mark.parametrize(
    ("axis", "floor", "ceil", "before"),
    [
        ((5, 2, 2, 1, 1), 3, 3, 4),
        ((2, 1, 3, 0, 1), 1, 1, 2),
        ((6, 3, 2, 1, 1), 3, 4, 4),
        ((7, 3, 2, 0, 1), 3, 3, 3),
    ],
)
def test_pooled_sizes_of_both_releases(
    axis: tuple[int, int, int, int, int], floor: int, ceil: int, before: int
) -> None:
    assert pool_out(*axis, ceil=False) == floor
    assert pool_out(*axis, ceil=True) == ceil
    assert pool_out_undropped(*axis) == before


def test_a_window_larger_than_the_axis_fits_when_rounding_up() -> None:
    assert pool_out(2, 3, 2, 0, 1, ceil=True) == 1
    with pytest.raises(ir.ShapeError, match="kernel_size: expected a window within the padded axis of 2, got one of 3"):
        pool_out(2, 3, 2, 0, 1, ceil=False)


def test_windows_that_an_older_client_declares_stand() -> None:
    static = {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True}
    assert made(ir.AvgPool1d, f(1, 1, 5), **static) == [((1, 1, 3), F32)]
    assert made(ir.AvgPool1d, f(1, 1, 5), given=Given((1, 1, 4)), **static) == [((1, 1, 4), F32)]
    assert made(ir.AvgPool1d, f(1, 1, 5), given=Given((1, 1, 5)), **static) == [((1, 1, 3), F32)]


def test_a_permuted_scheme_moves_blocks_and_packed_axis() -> None:
    scheme = QuantScheme(QuantValue.Q8S, PackedStore(PackedU32=0), QuantMode.Symmetric, None, BLOCKS)
    moved = permute_scheme(scheme, (2, 0, 1))
    assert moved.block is not None
    assert moved.block.size.dims == (4, 1, 2)
    assert moved.store == PackedStore(PackedU32=2)


def test_a_scheme_that_the_client_rewrote_stands() -> None:
    given = Given(dtype=qfloat(Q8_TWO_LEVEL))
    assert made(ir.SwapDims, ((4, 8), qfloat(Q8)), dim1=0, dim2=1, given=given) == [((8, 4), qfloat(Q8_TWO_LEVEL))]


def test_placeholders_do_not_matter() -> None:
    nothing = tensor(9, (7, 7, 7), U8)
    assert infer(ir.Neg(tensor(0, (2,), F32), nothing)) == (TensorType((2,), F32),)


# ---- building


def test_parameters_are_the_fields_in_order_with_options_by_name() -> None:
    assert parameters(ir.Scatter) == ("tensor", "dim", "indices", "value", "update")
    assert parameters(ir.Quantize) == ("tensor", "scales", "global_", "scheme")
    assert parameters(ir.LeakyRelu) == ("lhs", "rhs")
    assert input_names(ir.Scatter) == ("tensor", "indices", "value")


def test_every_kind_can_say_its_parameters() -> None:
    for kind in ir.kinds():
        assert set(input_names(kind)) <= set(parameters(kind))
        assert not {"out", "out_indices"} & set(parameters(kind))


def test_options_go_whole_or_by_name() -> None:
    options = ir.Conv1dOptions((2,), ((1, 1),), (1,), 1)
    by_name = made(ir.Conv1d, f(1, 1, 5), f(1, 1, 3), None, stride=2, padding=1)
    assert made(ir.Conv1d, f(1, 1, 5), f(1, 1, 3), None, options=options) == by_name == [((1, 1, 3), F32)]


WRONG_CALLS: dict[str, tuple[Any, type[Exception], str]] = {
    "missing": (lambda: made(ir.Gather, f(2), i(2)), TypeError, r"Gather\.dim: missing; expected int"),
    "unknown": (
        lambda: made(ir.Gather, f(2), i(2), dim=0, axis=0),
        TypeError,
        "Gather: has no field axis; it has tensor, dim, indices",
    ),
    "tensor": (lambda: made(ir.Add, f(2)), TypeError, r"Add\.rhs: expected a tensor, got none"),
    "tensors": (lambda: made(ir.Neg, f(2), f(2)), TypeError, "Neg: expected 1 tensors, got 2"),
    "list": (lambda: made(ir.Neg, [f(2)]), TypeError, r"Neg\.input: expected one tensor, got 1"),
    "enum": (
        lambda: made(ir.AllReduce, f(2), op="Max", device_ids=[]),
        ValueError,
        r"AllReduce\.op: invalid enum value",
    ),
    "type": (lambda: made(ir.Softmax, f(2), axis=0.5), ValueError, r"Softmax\.axis: expected `int`, got `float`"),
    "negative": (
        lambda: made(ir.RepeatDim, f(2), dim=0, times=-1),
        ValueError,
        r"RepeatDim\.times: expected `int` >= 0",
    ),
}


@pytest.mark.parametrize(("build_it", "error", "match"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_wrong_call_is_refused(build_it: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        build_it()
