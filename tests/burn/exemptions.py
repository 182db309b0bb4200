"""Differences between Burn's interpreter and ours that are known: a name, what it covers, and why.

Each stands in docs/differences.md with the side that is right. An exemption names kinds and the data that must be
there, or the place in Burn's sources that panics; where both sides give values, it says what ours have to be instead.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import ir
from ir.op import Op
from ir.scalar import convert
from jax_backend import host
from tests.burn.compare import Difference
from tests.burn.draw import info
from tests.reference import conv as conv_reference

Covers = Callable[[Difference], bool]

CANNOT_RUN = {
    "BaseInt.Cast": "the interpreter marks it unreachable, although every client sends it",
    "BaseBool.Cast": "the interpreter marks it unreachable",
    "BaseBool.GatherNd": "the interpreter refuses bools",
    "BaseBool.ScatterNd": "the interpreter refuses bools",
    "NumericFloat.Powi": "Flex wants an int exponent, which the builder of the IR refuses",
    "NumericFloat.IntRandom": "the interpreter marks it unreachable",
    "Float.Quantize": "the interpreter has a todo!() there",
    "Float.Dequantize": "the interpreter has a todo!() where quantized data is registered",
    "Module.Rfft": "0.22.1 has no such operation; it is in 0.22.0-pre.2",
    "Module.IRfft": "0.22.1 has no such operation; it is in 0.22.0-pre.2",
    "Module.CtcLossBackward": "Flex has none; its clients send what it is made of",
    "Distributed.AllReduce": "CPU backends have no collectives",
    "Distributed.SyncCollective": "CPU backends have no collectives",
    "Custom": "the oracle has no handler for the ids that Burn's clients send",
}
"""Forms that Burn's interpreter on Flex never executes, and why. Rows of `tests/cases` judge ours."""


class Exemption(NamedTuple):
    """A known difference: `covers` says of a difference whether it is this one."""

    name: str
    reason: str
    covers: Covers


def panics(pattern: str, *kinds: type[Op], when: Covers = lambda _: True) -> Covers:
    """Burn refuses one of `kinds` (any, if none is named) with a text like `pattern`, and ours runs."""
    expression = re.compile(pattern)

    def covers(d: Difference) -> bool:
        if d.burn.refusal is None or d.ours.refusal is not None:
            return False
        return (not kinds or isinstance(d.case.op, kinds)) and bool(expression.search(d.burn.refusal)) and when(d)

    return covers


def differs(*kinds: type[Op], when: Covers) -> Covers:
    """Both run one of `kinds`, and their values differ."""
    return lambda d: d.place is not None and isinstance(d.case.op, kinds) and when(d)


def is_empty(d: Difference) -> bool:
    """Some operand has no elements."""
    return any(array.size == 0 for array in d.case.inputs())


def has_wrong_empty_shape(d: Difference) -> bool:
    """The result is empty, and only ours has the declared shape."""
    burn, ours = d.burn.reads[0].shape, d.ours.reads[0].shape
    return 0 in ours and ours == d.case.op.outputs[0].shape.dims != burn


def is_not_finite(d: Difference) -> bool:
    """Some operand has a NaN or an infinity."""
    return any(not np.isfinite(array).all() for array in d.case.inputs() if array.dtype.kind == "f")


def is_bool(d: Difference) -> bool:
    """The operation is on bools."""
    return d.case.form.family == "BaseBool"


def gives_nan(d: Difference) -> bool:
    """Wherever the two differ, ours is NaN."""
    return bool(np.isnan(d.got.astype(np.float64)).all())


def _scalars(d: Difference) -> list[ir.ScalarIr]:
    return list(d.case.op.traced_scalars)


def has_wide_scalar(d: Difference) -> bool:
    """A scalar that Burn cannot turn into the integer it goes through: i64, for U64 u64, in a MaskFill the dtype."""
    dtype = (*d.case.op.inputs, *d.case.op.outputs)[0].dtype
    low, high = (0, 2**63 - 1) if dtype is ir.U64 else (-(2**63), 2**63 - 1)
    if isinstance(d.case.op, ir.MaskFill) and dtype.is_int:
        low, high = int(info(dtype).min), min(high, int(info(dtype).max))
    numbers = [s.value for s in _scalars(d) if math.isfinite(s.value)]
    if isinstance(d.case.op, ir.Pad):  # by way of f32, which rounds 2**63 - 1 up
        numbers = [int(np.float32(n)) for n in numbers]
    return any(not low <= n <= high for n in numbers)


def has_infinite_offset(d: Difference) -> bool:
    """The offset of a HardSigmoid is infinite, and Burn's result NaN."""
    return math.isinf(_scalars(d)[1].value) and bool(np.isnan(d.want.astype(np.float64)).all())


def has_scalar_beyond_f16(d: Difference) -> bool:
    """A scalar is infinite in f16, and not by itself."""
    is_f16 = d.case.op.inputs[0].dtype is ir.F16
    return is_f16 and any(65504 < abs(s.value) < math.inf for s in _scalars(d))


def has_infinite_exponent(d: Difference) -> bool:
    """The static exponent is NaN or infinite."""
    return not math.isfinite(d.case.op.rhs.value)  # type: ignore[attr-defined]


def has_zero_divisor(d: Difference) -> bool:
    """A divisor of 0; or -1, by which i64's smallest number overflows."""
    if scalars := _scalars(d):
        return convert(scalars[0].value, d.case.op.inputs[0].dtype) in (0, -1)
    divisor = d.case.inputs()[-1]
    return bool(((divisor == 0) | (divisor == -1)).any())


def has_index_out_of_range(d: Difference) -> bool:
    """An index is as large as the axis it counts along; the generators draw none larger, and none below 0."""
    op, (data, indices, *_) = d.case.op, d.case.inputs()
    if isinstance(op, ir.GatherNd | ir.ScatterNd):
        sizes = np.array(data.shape[: indices.shape[-1]])
        return bool((indices.astype(np.int64) >= sizes).any())
    return bool((indices.astype(np.int64) >= data.shape[op.dim]).any())  # type: ignore[attr-defined]


def has_wrong_groups(d: Difference) -> bool:
    """A grouped weight gradient whose windows end before the padded axis does; ours is that of a loop in float64."""
    o = d.case.op.options  # type: ignore[attr-defined]
    x, weight, _ = inputs = d.case.inputs()
    pads = tuple((p, p) if isinstance(p, int) else p for p in o.padding)
    axes = zip(x.shape[2:], weight.shape[2:], o.stride, pads, o.dilation, strict=True)
    if o.groups == 1 or not any((n + sum(pad) - dilation * (k - 1) - 1) % s for n, k, s, pad, dilation in axes):
        return False
    static = {"stride": o.stride, "pads": pads, "dilation": o.dilation, "groups": o.groups}
    with np.errstate(all="ignore"):
        want = conv_reference.conv_weight_grad(*inputs, **static)
    got = host.to_numpy(d.ours.reads[0]).astype(np.float64)
    is_spoiled = np.isnan(got) if is_not_finite(d) else False
    return bool((np.isclose(got, want, rtol=1e-2, atol=1e-2, equal_nan=True) | is_spoiled).all())


PRODUCTS = (ir.Matmul, ir.Linear, ir.LinearXBackward, ir.LinearWeightBackward)
WEIGHT_GRADIENTS = (
    ir.Conv1dWeightBackward,
    ir.Conv2dWeightBackward,
    ir.Conv3dWeightBackward,
)
CONVOLUTIONS = (
    ir.Conv1d,
    ir.Conv2d,
    ir.Conv3d,
    ir.Conv1dXBackward,
    ir.Conv2dXBackward,
    ir.Conv3dXBackward,
    *WEIGHT_GRADIENTS,
    ir.ConvTranspose1d,
    ir.ConvTranspose2d,
    ir.ConvTranspose3d,
    ir.ConvTranspose1dWeightBackward,
    ir.ConvTranspose2dWeightBackward,
    ir.ConvTranspose3dWeightBackward,
)

EXEMPTIONS: tuple[Exemption, ...] = (
    Exemption(
        "form-burn-cannot-run",
        "see CANNOT_RUN",
        lambda d: d.case.form.path in CANNOT_RUN and d.burn.refusal is not None,
    ),
    Exemption(
        "integer-division-by-zero",
        "Burn panics; XLA has no trap, its quotient is all ones and its remainder the dividend",
        panics(
            "attempt to (divide|calculate the remainder)",
            ir.Div,
            ir.DivScalar,
            ir.Rem,
            ir.RemScalar,
            when=has_zero_divisor,
        ),
    ),
    Exemption(
        "scalar-beyond-i64",
        "Burn unwraps a scalar as i64, as u64 for U64, or as the dtype; ours wraps it, as Burn does on other paths",
        panics(r"`Option::unwrap\(\)` on a `None` value.*ops/int\.rs", when=has_wide_scalar),
    ),
    Exemption(
        "power-of-infinity",
        "Burn asks whether the exponent is whole by way of i64, and unwraps; ours takes IEEE's power",
        panics(r"`Option::unwrap\(\)` on a `None` value.*scalar\.rs", ir.PowfScalar, when=has_infinite_exponent),
    ),
    Exemption(
        "clamp-with-crossed-bounds",
        "Flex asserts min <= max; Burn's own default gives min, and so does ours",
        panics(r"min > max", ir.Clamp),
    ),
    Exemption(
        "unfold-without-windows",
        "Flex panics; the builder of the IR declares no windows",
        panics("smaller than window size", ir.Unfold),
    ),
    Exemption(
        "empty-reduction",
        "Flex indexes into nothing; the answer is known: empty, or one value per position",
        panics(r"index out of bounds: the len is 0", ir.AllDim, ir.AnyDim, when=is_empty),
    ),
    Exemption(
        "empty-softmax",
        "Flex takes the maximum of nothing; the result is empty",
        panics("max_dim: dimension . has size 0", ir.LogSoftmax, ir.Softmax, ir.Softmin, when=is_empty),
    ),
    Exemption(
        "empty-cross",
        "Flex slices into nothing; the result is empty",
        panics("out of range for slice", ir.Cross, when=is_empty),
    ),
    Exemption(
        "empty-product",
        "Flex reads beyond an empty batch (it dies, or panics on ints), or makes one row of it; the result is empty",
        lambda d: (
            panics(r"the process ended|index out of bounds.*matmul\.rs", *PRODUCTS, when=is_empty)(d)
            or differs(*PRODUCTS, when=has_wrong_empty_shape)(d)
        ),
    ),
    Exemption(
        "bool-update",
        "the interpreter updates bools by Add alone; ours by the same rules as numbers",
        panics(
            r"not implemented .*interpreter\.rs",
            ir.SelectAssign,
            ir.Scatter,
            when=lambda d: d.case.form.family == "BaseBool",
        ),
    ),
    Exemption(
        "mean-of-unsigned",
        "Flex has signed means only; ours divides the wrapped sum",
        panics("int_mean: unsupported dtype", ir.Mean),
    ),
    Exemption(
        "matmul-of-narrow-ints",
        "Flex multiplies I32 and I64 only; ours all, wrapping",
        panics("int_matmul: unsupported dtype", ir.Matmul),
    ),
    Exemption(
        "interpolate-mode",
        "Flex lacks NearestExact, and the gradient of Lanczos3; ours serves all",
        panics("unsupported mode (NearestExact|Lanczos3)", ir.Interpolate, ir.InterpolateBackward),
    ),
    Exemption(
        "ctc-unsigned-length-of-0",
        "Burn's index 2 * 0 - 1 wraps in an unsigned dtype; ours takes the empty target",
        panics("out of (bounds|isize range)", ir.CtcLoss, when=lambda d: not d.case.op.inputs[1].dtype.is_signed),
    ),
    Exemption(
        "index-out-of-range",
        "Burn panics; in a compiled program nothing can, and the value is any",
        panics(
            "out of (bounds|range)",
            ir.Select,
            ir.SelectAssign,
            ir.Gather,
            ir.Scatter,
            ir.GatherNd,
            ir.ScatterNd,
            when=has_index_out_of_range,
        ),
    ),
    Exemption(
        "grouped-weight-gradient",
        "Burn's default does not cut off what a dropped tail adds; ours is the adjoint, as a loop says too",
        differs(*WEIGHT_GRADIENTS, when=has_wrong_groups),
    ),
    Exemption(
        "infinity-spreads-in-a-convolution",
        "XLA multiplies infinities by the zeros that it puts between elements and groups: NaN where Burn skips them",
        differs(*CONVOLUTIONS, when=lambda d: is_not_finite(d) and gives_nan(d)),
    ),
    Exemption(
        "nan-spreads-in-unfold4d",
        "Burn convolves with ones and zeros, so that a NaN or an infinity reaches other rows; ours copies",
        differs(ir.Unfold4d, when=lambda d: is_not_finite(d) and bool(np.isnan(d.want.astype(np.float64)).all())),
    ),
    Exemption(
        "slope-beyond-f16",
        "Burn keeps the slope of halves in f32; ours rounds every scalar to the dtype of its tensor",
        differs(ir.LeakyRelu, ir.HardSigmoid, when=has_scalar_beyond_f16),
    ),
    Exemption(
        "fused-product-and-sum",
        "XLA's CPU programs fuse alpha * x + beta, so that the product does not overflow before beta is added",
        differs(ir.HardSigmoid, when=has_infinite_offset),
    ),
    Exemption(
        "infinity-times-a-denormal",
        "XLA's CPU programs take a denormal for 0, and 0 * inf is NaN where Burn has inf",
        differs(ir.LogSigmoidBackward, ir.GeluBackward, when=lambda d: is_not_finite(d) and gives_nan(d)),
    ),
    Exemption(
        "attention-row-of-nan",
        "Flex's row maximum passes over NaN, and a row of nothing else counts as hidden: 0; ours is NaN",
        differs(ir.Attention, when=lambda d: is_not_finite(d) and gives_nan(d) and not d.want.any()),
    ),
)


def exemption(difference: Difference) -> str | None:
    """The name of the exemption that covers a difference, if any."""
    return next((e.name for e in EXEMPTIONS if e.covers(difference)), None)
