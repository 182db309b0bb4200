"""Quantization, and operations on quantized tensors. Every scheme is in `tests/jax_backend/ops/test_quantize.py`."""

from typing import Any

import numpy as np

import ir
from ir import BF16, F16, F32, F64, I64
from ir.dtype import (
    BlockScale,
    BlockSize,
    NativeStore,
    PackedStore,
    QuantMode,
    QuantScheme,
    QuantStore,
    QuantValue,
    ScaleDtype,
)
from ir.errors import DTypeError, ShapeError, UnsupportedOp
from tests.opcase import BadCase, OpCase, Tolerance, Typed, t

WORDS, NATIVE = PackedStore(PackedU32=0), NativeStore.Native


def scheme(
    value: str = "Q8S",
    store: QuantStore = NATIVE,
    tensor: str | None = None,
    block: tuple[int, ...] | None = None,
    dtype: str = "F32",
    mode: QuantMode = QuantMode.Symmetric,
) -> QuantScheme:
    """A scheme; `dtype` is that of block scales."""
    size = None
    if block is not None:
        first, second, third, fourth, fifth = (*block, *(1,) * (5 - len(block)))
        size = BlockScale(BlockSize((first, second, third, fourth, fifth), len(block)), ScaleDtype(dtype))
    return QuantScheme(QuantValue(value), store, mode, None if tensor is None else ScaleDtype(tensor), size)


class Bytes:
    """A quantized tensor: its logical shape, its scheme, and its bytes, from parts."""

    def __init__(self, shape: tuple[int, ...], scheme: QuantScheme, *parts: Any) -> None:
        self.shape, self.dtype = shape, ir.qfloat(scheme)
        flat = b"".join(p if isinstance(p, bytes) else np.asarray(p).tobytes() for p in parts)
        self.typed = Typed(np.frombuffer(flat, np.uint8), self.dtype)


def i8(*values: int) -> np.ndarray:
    return np.array(values, np.int8)


def f(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


Operand = Typed | Bytes


def described(number: int, x: Operand, status: ir.TensorStatus = ir.READ_ONLY) -> ir.TensorIr:
    return ir.tensor(number, x.shape if isinstance(x, Bytes) else x.array.shape, x.dtype, status)


def plain(x: Operand) -> Typed:
    return x.typed if isinstance(x, Bytes) else x


def row(
    id: str, kind: type[ir.Op], inputs: dict[str, Operand], want: Operand, tol: Tolerance | None = None, **static: Any
) -> OpCase:
    """A row of any kind with one output, whose fields are given by name."""
    tensors: dict[str, Any] = {name: described(n, x) for n, (name, x) in enumerate(inputs.items())}
    op = kind(**tensors, out=described(len(inputs), want, ir.NOT_INIT), **static)
    return OpCase(id, op, tuple(map(plain, inputs.values())), (plain(want),), tol)


def quantized(id: str, x: Typed, scales: Typed, whole: Typed | None, want: Bytes) -> OpCase:
    """A row of Quantize."""
    inputs = [x, scales] if whole is None else [x, scales, whole]
    tensors = [described(n, v) for n, v in enumerate(inputs)]
    parameters = ir.QuantizationParameters(tensors[1], tensors[2] if whole else None)
    out = described(len(inputs), want, ir.NOT_INIT)
    op = ir.Quantize(tensors[0], parameters, want.dtype.scheme, out)
    return OpCase(f"quantize-{id}", op, tuple(inputs), (want.typed,))


def dequantized(id: str, x: Bytes, want: Typed) -> OpCase:
    return row(f"dequantize-{id}", ir.Dequantize, {"input": x}, want)


def moved(id: str, kind: type[ir.Op], x: Operand, want: Operand, indices: Typed | None = None, **static: Any) -> OpCase:
    """A row of an operation that moves elements."""
    name = "tensor" if kind in (ir.Slice, ir.Select, ir.Gather) else "input"
    inputs = {name: x} if indices is None else {name: x, "indices": indices}
    return row(f"quantized-{id}", kind, inputs, want, **static)


TENTH = t(F32, [0.1])
Q8S, Q8S_WORDS, Q4S_WORDS = scheme(), scheme(store=WORDS), scheme("Q4S", WORDS)
ROWS_OF_2 = scheme(block=(2,))

QUANTIZE = [
    quantized("symmetric", t(F32, [-1.8, -1.0, 0.0, 0.5]), t(F32, [0.014173228]), None,
              Bytes((4,), Q8S, bytes.fromhex("81b90023d436683c"))),
    quantized("clamps", t(F32, [5, 0, 4, -12.8, 99]), TENTH, None, Bytes((5,), Q8S, i8(50, 0, 40, -127, 127), f(0.1))),
    quantized("full-range", t(F32, [-12.8, -13, 12.8]), TENTH, None,
              Bytes((3,), scheme("Q8F"), i8(-128, -128, 127), f(0.1))),
    quantized("rounds-half-away-from-zero", t(F32, [0.5, 1.5, 2.5, -0.5, -2.5]), t(F32, [1]), None,
              Bytes((5,), Q8S, i8(1, 2, 3, -1, -3), f(1))),
    quantized("just-below-half-rounds-down", t(F32, [0.49999997]), t(F32, [1]), None, Bytes((1,), Q8S, i8(0), f(1))),
    quantized("nan-gives-0-inf-the-bound", t(F32, [np.nan, np.inf, -np.inf]), t(F32, [1]), None,
              Bytes((3,), Q8S, i8(0, 127, -127), f(1))),
    quantized("scale-0-acts-as-the-smallest-normal", t(F32, [0, 2.0**-125]), t(F32, [0]), None,
              Bytes((2,), Q8S, i8(0, 2), f(2.0**-126))),
    quantized("scale-rounds-up-to-its-dtype", t(F32, [0.3, 0.625]), t(F32, [0.3]), None,
              Bytes((2,), scheme(tensor="UE4M3"), i8(1, 2), b"\x2a")),
    quantized("scale-saturates-at-its-largest", t(F32, [448]), t(F32, [500]), None,
              Bytes((1,), scheme(tensor="UE4M3"), i8(1), b"\x7e")),
    quantized("scale-as-a-power-of-two", t(F32, [1, 3]), t(F32, [0.6]), None,
              Bytes((2,), scheme(tensor="UE8M0"), i8(1, 3), b"\x7f")),
    quantized("blocks", t(F32, [[1, 2, 30, 40]]), t(F32, [[1, 10]]), None,
              Bytes((1, 4), ROWS_OF_2, i8(1, 2, 3, 4), f(1, 10))),
    quantized("blocks-are-rectangles", t(F32, [[1, 20], [3, 40]]), t(F32, [[1, 10]]), None,
              Bytes((2, 2), scheme(block=(2, 1)), i8(1, 2, 3, 4), f(1, 10))),
    quantized("two-levels", t(F32, [0.5, 1, 1.5, 2, -2, 2, -4, 8]), t(F32, [1, 2]), t(F32, [0.5]),
              Bytes((8,), scheme(tensor="F32", block=(4,), dtype="UE4M3"), i8(1, 2, 3, 4, -2, 2, -4, 8), b"\x38\x40",
                    f(0.5))),
    quantized("four-bits-fill-words-line-by-line", t(F32, [[1, -1, 7], [0, 2, 3], [-7, 4, 5]]), t(F32, [1]), None,
              Bytes((3, 3), Q4S_WORDS, np.array([0x7F1, 0x320, 0x549], np.uint32), f(1))),
    quantized("eight-bits-in-words", t(F32, [-128, 2, -3, 127]), t(F32, [1]), None,
              Bytes((4,), scheme("Q8F", WORDS), np.array([2147287680], np.uint32), f(1))),
    quantized("two-bits-in-words-along-the-outer-axis", t(F32, [[1, -1], [-1, 0], [1, 1]]), t(F32, [1]), None,
              Bytes((3, 2), scheme("Q2S", PackedStore(PackedU32=1)), np.array([0b01_11_01, 0b01_00_11], np.uint32),
                    f(1))),
    quantized("e2m1-two-in-a-byte", t(F32, [[6, -6, 1]]), t(F32, [1]), None,
              Bytes((1, 3), scheme("E2M1", PackedStore(PackedNative=0)), b"\xa6\x01", f(1))),
    quantized("f64-and-scales-of-f16", t(F64, [1, -3]), t(F16, [0.5]), None, Bytes((2,), Q8S, i8(2, -6), f(0.5))),
    quantized("nothing", t(F32, np.zeros((0, 3))), t(F32, [1]), None, Bytes((0, 3), Q8S, f(1))),
]  # fmt: skip

DEQUANTIZE = [
    dequantized("symmetric", Bytes((4,), Q8S, bytes.fromhex("81b90023d436683c")),
                t(F32, [-1.8, -1.0062993, 0, 0.496063])),
    dequantized("words-of-four-bits", Bytes((8,), Q4S_WORDS, np.array([286331136], np.uint32), f(2)),
                t(F32, [0, 0, 2, 2, 2, 2, 2, 2])),
    dequantized("words-hold-signs", Bytes((4,), Q8S_WORDS, np.array([2147287680], np.uint32), f(0.5)),
                t(F32, [-64, 1, -1.5, 63.5])),
    dequantized("blocks", Bytes((2, 2), ROWS_OF_2, i8(1, 2, 3, 4), f(1, 10)), t(F32, [[1, 2], [30, 40]])),
    dequantized("power-of-two-scales", Bytes((2,), scheme(block=(1,), dtype="UE8M0"), i8(3, 3), b"\x80\x7e"),
                t(F32, [6, 1.5])),
    dequantized("power-of-two-nan", Bytes((1,), scheme(tensor="UE8M0"), i8(3), b"\xff"), t(F32, [np.nan])),
    dequantized("two-levels", Bytes((2,), scheme(tensor="F32", block=(1,), dtype="F16"), i8(3, -5),
                                    np.array([2, 4], np.float16), f(0.25)), t(F32, [1.5, -5])),
    dequantized("to-f16", Bytes((2,), Q8S, i8(1, -3), f(0.1)), t(F16, np.float32([0.1, -0.3]))),
    dequantized("to-bf16", Bytes((1,), Q8S, i8(3), f(0.1)), t(BF16, [0.3])),
    dequantized("to-f64-goes-through-f32", Bytes((1,), Q8S, i8(1), f(0.1)), t(F64, [np.float64(np.float32(0.1))])),
]  # fmt: skip

SIX = Bytes((2, 3), Q8S, i8(1, 2, 3, 4, 5, 127), f(0.1))
BLOCKS = Bytes((2, 4), ROWS_OF_2, i8(127, 1, 0, 127, 127, 0, 127, 64), f(1, 2, 4, 8))


def six(shape: tuple[int, ...], *values: int, store: QuantStore = NATIVE) -> Bytes:
    """What a move makes of `SIX`: the same scale."""
    return Bytes(shape, scheme(store=store), i8(*values), f(0.1))


WHOLE = ir.SliceRange(0, None, 1)

MOVED = [
    moved("reshape", ir.Reshape, SIX, six((3, 2), 1, 2, 3, 4, 5, 127)),
    moved("swap_dims", ir.SwapDims, SIX, six((3, 2), 1, 4, 2, 5, 3, 127), dim1=0, dim2=1),
    moved("permute", ir.Permute, SIX, six((3, 2), 1, 4, 2, 5, 3, 127), axes=(1, 0)),
    moved("permute-moves-the-packed-axis", ir.Permute,
          Bytes((2, 3), Q4S_WORDS, np.array([0x321, 0x7F5], np.uint32), f(1)),
          Bytes((3, 2), scheme("Q4S", PackedStore(PackedU32=1)), np.array([0x321, 0x7F5], np.uint32), f(1)),
          axes=(1, 0)),
    moved("flip", ir.Flip, SIX, six((2, 3), 3, 2, 1, 127, 5, 4), axes=(1,)),
    moved("expand", ir.Expand, Bytes((1, 2), Q8S, i8(1, 127), f(0.1)), six((2, 2), 1, 127, 1, 127)),
    moved("slice-keeps-the-scale-of-what-is-cut-off", ir.Slice, SIX, six((2, 2), 1, 2, 4, 5),
          ranges=(WHOLE, ir.SliceRange(0, 2, 1))),
    moved("slice-downward", ir.Slice, SIX, six((1, 3), 6 - 3, 2, 1), ranges=(ir.SliceRange(0, 1, 1),
                                                                            ir.SliceRange(0, None, -1))),
    moved("select", ir.Select, SIX, six((2, 2), 3, 3, 127, 127), t(I64, [2, 2]), dim=1),
    moved("gather", ir.Gather, SIX, six((2, 1), 3, 4), t(I64, [[2], [0]]), dim=1),
    moved("blocks-swap_dims", ir.SwapDims, Bytes((2, 2), ROWS_OF_2, i8(127, 1, -127, 64), f(1, 2)),
          Bytes((2, 2), scheme(block=(2, 1)), i8(127, -127, 1, 64), f(1, 2)), dim1=0, dim2=1),
    moved("blocks-select-get-scales-of-their-own", ir.Select, BLOCKS,
          Bytes((1, 4), ROWS_OF_2, i8(127, 0, 127, 64), f(4, 8)), t(I64, [1]), dim=0),
    moved("blocks-flip", ir.Flip, BLOCKS,
          Bytes((2, 4), ROWS_OF_2, i8(127, 0, 1, 127, 64, 127, 0, 127), f(2, 1, 8, 4)), axes=(1,)),
]  # fmt: skip

HALVES = Bytes((2, 2), Q8S, i8(2, 4, -6, 127), f(0.5))
PRODUCT = np.array([[1 * 1 + 2 * 3, 1 * 2 + 2 * 4], [-3 * 1 + 63.5 * 3, -3 * 2 + 63.5 * 4]])

MATMUL = [
    row("quantized-matmul-lhs", ir.Matmul, {"lhs": HALVES, "rhs": t(F32, [[1, 2], [3, 4]])}, t(F32, PRODUCT)),
    row("quantized-matmul-rhs", ir.Matmul, {"lhs": t(F32, [[1, 0]]), "rhs": HALVES}, t(F32, [[1, 2]])),
    row("quantized-matmul-both", ir.Matmul, {"lhs": HALVES, "rhs": HALVES},
        t(F32, [[1 - 6, 2 + 127], [-3 - 190.5, -6 + 63.5**2]])),
    row("quantized-matmul-f16", ir.Matmul, {"lhs": HALVES, "rhs": t(F16, [[1, 2], [3, 4]])}, t(F16, PRODUCT)),
    row("quantized-matmul-result-gets-a-scale-of-its-own", ir.Matmul,
        {"lhs": Bytes((1, 1), Q8S, i8(4), f(0.5)), "rhs": t(F32, [[127, 63.6, -1]])},
        Bytes((1, 3), Q8S, i8(127, 64, -1), f(2))),
]  # fmt: skip

CASES = [*QUANTIZE, *DEQUANTIZE, *MOVED, *MATMUL]


def refused(id: str, want: Bytes, error: type[Exception], match: str) -> BadCase:
    """A Quantize of four ones by a scheme that makes no sense for them."""
    scales = t(F32, [1])
    made = quantized(id, t(F32, np.ones((1, 4))), scales, None, want)
    return BadCase(f"quantize-{id}", made.op, error, match, made.inputs)


BAD_CASES = [
    refused("lookup", Bytes((1, 4), scheme(mode=QuantMode.Lookup)), UnsupportedOp, "Lookup, whose codebook"),
    refused("bf16-blocks-under-a-global-scale", Bytes((1, 4), scheme(tensor="F32", block=(2,), dtype="BF16")),
            DTypeError, r"scheme\.block: block scales in BF16 reach f32's range.*use F16 or UE4M3"),
    refused("global-scale-of-f16", Bytes((1, 4), scheme(tensor="F16", block=(2,), dtype="F16")), DTypeError,
            r"scheme\.tensor: expected F32 above block scales, got F16"),
    refused("block-does-not-divide", Bytes((1, 4), scheme(block=(3,))), ShapeError, "block that divides"),
    BadCase("dequantize-data-too-short", DEQUANTIZE[0].op, DTypeError, "expected 8 bytes of quantized data, got 7",
            (Typed(np.zeros(7, np.uint8), ir.qfloat(Q8S)),)),
]  # fmt: skip
