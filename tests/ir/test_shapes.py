"""`ir.shapes`: every kind has a rule, in agreement with every row of every table and values by hand."""

import pytest

import ir
from ir import BF16, BOOL, BOOL_U8, F16, F32, F64, I8, I32, I64, U8, SliceRange, scalar, tensor
from ir.dtype import (
    DType,
    PackedStore,
    QuantMode,
    QuantScheme,
    QuantValue,
    qfloat,
)
from ir.op import values
from ir.shapes import (
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
from tests.ir.made import BLOCKS, Q8, Q8_TWO_LEVEL, b, f, i, made

SHAPE_IS_GIVEN = {
    *(ir.Reshape, ir.Expand, ir.Full, ir.Zeros, ir.Ones, ir.Empty, ir.Random, ir.IntRandom, ir.Init, ir.Custom)
}


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
        # An older client may have counted more windows than later ones do; whether the product of a quantized tensor is
        # quantized again is the client's choice.
        requantized = isinstance(row.op, ir.Matmul) and row.op.out.dtype.is_quantized
        given = Given(
            dims=said.dims if getattr(row.op, "ceil_mode", False) else None,
            dtype=said.dtype if isinstance(row.op, ir.Cast) or requantized else None,
        )
        found = [t and (t.dims, family_of(t.dtype)) for t in infer(row.op, given)]
        if found != [t and (t.dims, family_of(t.dtype)) for t in output_types(row.op)]:
            wrong.append(row.id)
    assert wrong == []


# ---- values by hand

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
