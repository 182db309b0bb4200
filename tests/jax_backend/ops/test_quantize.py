"""Quantization of one tensor by every scheme, against what Burn's CPU backend (Flex, 0.22.1) gave.

`tests/golden/quantized.jsonl` holds a [4, 32] f32 tensor (zeros, outliers, a small row, a zero row) and, per value kind
and levels of scales, the bytes that Burn reads back, the floats they stand for, or its reason to refuse. Burn hands
every store back as Native, so the bytes of packed stores come from the loops of `tests/reference/quantize.py`.
"""

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import ir
from ir.dtype import BlockScale, BlockSize, NativeStore, PackedStore, QuantMode, QuantScheme, QuantValue, ScaleDtype
from ir.errors import DTypeError, ShapeError, UnsupportedOp
from jax_backend.host import from_numpy, to_numpy
from jax_backend.ops.quantize import dequantize, quantize, quantize_dynamic, storage_size, unpack
from jax_backend.recorder import Recorder
from tests.reference import quantize as reference

HEADER, *ROWS = map(json.loads, (Path(__file__).parents[2] / "golden" / "quantized.jsonl").read_text().splitlines())
INPUT = np.frombuffer(base64.b64decode(HEADER["input"]), np.float32).reshape(HEADER["shape"])
ANSWERED = [row for row in ROWS if "bytes" in row]
REFUSED = [row for row in ROWS if "refused" in row]
STORES = {
    "Native": NativeStore.Native,
    "PackedU32": PackedStore(PackedU32=0),
    "PackedNative": PackedStore(PackedNative=0),
}


def scheme_of(row: dict[str, Any], store: str = "Native") -> QuantScheme:
    """The scheme of a row of the file, with one of the stores."""
    size = None if row["block"] is None else BlockSize((row["block"], 1, 1, 1, 1), 1)
    block = None if size is None else BlockScale(size, ScaleDtype(row["block_dtype"]))
    tensor = None if row["tensor"] is None else ScaleDtype(row["tensor"])
    return QuantScheme(QuantValue(row["value"]), STORES[store], QuantMode.Symmetric, tensor, block)


def name_of(row: dict[str, Any]) -> str:
    return "-".join(str(row[key]) for key in ("value", "tensor", "block", "block_dtype"))


class Answer(NamedTuple):
    """What one scheme gives: bytes of Quantize, floats of Dequantize, of Native also bytes quantized by magnitude."""

    data: bytes
    floats: bytes
    dynamic: bytes


def scales_of(row: dict[str, Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """The scales, before any rounding, that a client computes and sends with Quantize."""
    raw = reference.raw_scales(INPUT, row["value"], None if row["block"] is None else (row["block"],))
    if row["block"] is None or row["tensor"] is None:
        return raw, None
    largest = {"F16": 65504.0, "UE4M3": 448.0}[row["block_dtype"]]
    whole, _ = reference.stored_scale(float(raw.max() / np.float32(largest)), "F32")
    return raw / whole, np.array([whole])


@cache
def answers(value: str) -> dict[tuple[str, str], Answer]:
    """Every scheme of one value kind, by name and store, from one compiled program."""
    rows = [(row, store) for row in ANSWERED if row["value"] == value for store in STORES]

    def run(x: Any, given: list[Any]) -> list[Any]:
        made: list[Any] = []
        for (row, store), (scales, whole) in zip(rows, given, strict=True):
            scheme = scheme_of(row, store)
            dtype = ir.qfloat(scheme)
            tensors = [ir.tensor(0, x.shape, ir.F32), ir.tensor(1, scales.shape, ir.F32), ir.tensor(2, x.shape, dtype)]
            parameters = ir.QuantizationParameters(tensors[1], None if whole is None else ir.tensor(3, (1,), ir.F32))
            data = quantize(ir.Quantize(tensors[0], parameters, scheme, tensors[2]), x, scales, whole)
            dynamic = quantize_dynamic(x, scheme) if store == "Native" else data
            made.append((data, dequantize(ir.Dequantize(tensors[2], tensors[0]), data), dynamic))
        return made

    results = jax.jit(run)(INPUT, [scales_of(row) for row, _ in rows])
    return {
        (name_of(row), store): Answer(*(np.asarray(part).tobytes() for part in result))
        for (row, store), result in zip(rows, results, strict=True)
    }


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("row", ANSWERED, ids=name_of)
def test_burns_answer(row: dict[str, Any], store: str) -> None:
    native = base64.b64decode(row["bytes"])
    got = answers(row["value"])[name_of(row), store]
    values = np.frombuffer(native[: INPUT.size], np.int8).reshape(INPUT.shape)
    expected = reference.value_bytes(values, row["value"], store, 0) + native[INPUT.size :]
    assert got.data.hex() == expected.hex()
    assert got.floats == base64.b64decode(row["floats"])
    assert got.dynamic == got.data
    assert len(got.data) == storage_size(ir.tensor(0, INPUT.shape, ir.qfloat(scheme_of(row, store))))


@pytest.mark.parametrize("row", REFUSED, ids=name_of)
def test_burns_refusal(row: dict[str, Any]) -> None:
    with pytest.raises(DTypeError, match=row["refused"]):
        quantize_dynamic(jax.numpy.asarray(INPUT), scheme_of(row))


def test_all_schemes_are_there() -> None:
    assert len(ANSWERED) * len(STORES) == 459
    assert len(REFUSED) * len(STORES) == 81


def test_global_scale_must_be_f32() -> None:
    scheme = scheme_of({"value": "Q8S", "tensor": "F16", "block": 16, "block_dtype": "UE4M3"})
    with pytest.raises(DTypeError, match="expected F32 above block scales, got F16"):
        quantize_dynamic(jax.numpy.asarray(INPUT), scheme)


def test_lookup_is_refused() -> None:
    scheme = QuantScheme(QuantValue.Q8S, NativeStore.Native, QuantMode.Lookup, None, None)
    with pytest.raises(UnsupportedOp, match="codebook"):
        quantize_dynamic(jax.numpy.asarray(INPUT), scheme)


def test_block_that_does_not_divide_is_refused() -> None:
    scheme = scheme_of({"value": "Q8S", "tensor": None, "block": 24, "block_dtype": "F32"})
    with pytest.raises(ShapeError, match=r"expected a block that divides"):
        quantize_dynamic(jax.numpy.asarray(INPUT), scheme)


def test_packed_axis_beyond_the_rank_is_refused() -> None:
    scheme = QuantScheme(QuantValue.Q4S, PackedStore(PackedU32=2), QuantMode.Symmetric, None, None)
    with pytest.raises(DTypeError, match="expected a packed axis below 2, got 2"):
        storage_size(ir.tensor(0, (4, 32), ir.qfloat(scheme)))


def test_data_of_the_wrong_length_is_refused() -> None:
    tensor = ir.tensor(0, (2, 3), ir.qfloat(scheme_of({"value": "Q8S", "tensor": None, "block": None})))
    with pytest.raises(DTypeError, match="expected 10 bytes of quantized data, got 9"):
        unpack(jax.numpy.zeros(9, jax.numpy.uint8), tensor)


@pytest.mark.parametrize("dtype", ["F16", "BF16", "UE8M0", "UE4M3"])
def test_scales_round_up_to_the_next_that_a_dtype_has(dtype: str) -> None:
    table, _ = reference.scale_table(dtype)
    table = table[(table > 2.0**-126) & (table < 2.0**127)]
    table = table[:: max(1, len(table) // 97)].astype(np.float32)
    raw = np.concatenate([table, np.nextafter(table, np.float32(np.inf)), np.nextafter(table, np.float32(0))])
    raw = np.concatenate([raw, np.array([0, -1, np.nan, np.inf, 3e38], np.float32)])
    scheme = QuantScheme(QuantValue.Q8S, NativeStore.Native, QuantMode.Symmetric, None, block_of_one(dtype))
    tensors = [ir.tensor(n, raw.shape, d) for n, d in enumerate((ir.F32, ir.F32, ir.qfloat(scheme)))]
    op = ir.Quantize(tensors[0], ir.QuantizationParameters(tensors[1], None), scheme, tensors[2])
    data = np.asarray(quantize(op, jax.numpy.zeros_like(raw), jax.numpy.asarray(raw), None)).tobytes()
    expected = b"".join(reference.stored_scale(clamped(float(s), dtype), dtype)[1] for s in raw)
    assert data[raw.size :].hex() == expected.hex()


def block_of_one(dtype: str) -> BlockScale:
    return BlockScale(BlockSize((1, 1, 1, 1, 1), 1), ScaleDtype(dtype))


def clamped(scale: float, dtype: str) -> float:
    """What Burn makes of a scale that is none: of a negative one the smallest, of NaN the smallest normal f32."""
    return 2.0**-126 if np.isnan(scale) else 0.0 if scale < 0 and dtype == "UE8M0" else scale


def test_session_uploads_computes_and_reads_quantized_tensors() -> None:
    packed = QuantScheme(QuantValue.Q4S, PackedStore(PackedU32=0), QuantMode.Symmetric, None, None)
    turned = QuantScheme(QuantValue.Q4S, PackedStore(PackedU32=1), QuantMode.Symmetric, None, None)
    data = np.array([0x321, 0x7F5], np.uint32).tobytes() + np.float32(0.5).tobytes()
    x, turned_x = ir.tensor(1, (2, 3), ir.qfloat(packed)), ir.tensor(2, (3, 2), ir.qfloat(turned))
    floats, scale, again = (
        ir.tensor(3, (3, 2), ir.F32),
        ir.tensor(4, (1,), ir.F32),
        ir.tensor(5, (3, 2), turned_x.dtype),
    )
    recorder = Recorder(seed=0)
    recorder.register_tensor_data_id(1, ir.TensorData(memoryview(data), (2, 3), x.dtype))
    recorder.register_tensor_data_id(4, from_numpy(np.array([0.25], np.float32), ir.F32))
    for op in (
        ir.Permute(x, turned_x, (1, 0)),
        ir.Dequantize(turned_x, floats),
        ir.Quantize(floats, ir.QuantizationParameters(scale, None), turned, again),
    ):
        recorder.register_operation(op)
    moved = recorder.read_tensor(turned_x).result()
    assert (moved.dtype, moved.shape, bytes(moved.bytes)) == (turned_x.dtype, (3, 2), data)
    expected = np.array([[0.5, 2.5], [1, -0.5], [1.5, 3.5]], np.float32)
    np.testing.assert_array_equal(to_numpy(recorder.read_tensor(floats).result()), expected)
    doubled = np.array([0x642, 0x7E7], np.uint32).tobytes() + np.float32(0.25).tobytes()  # 10 and 14 clamp to 7
    assert bytes(recorder.read_tensor(again).result().bytes) == doubled
    recorder.close()


def test_upload_of_the_wrong_length_fails_its_reader_alone() -> None:
    scheme = scheme_of({"value": "Q8S", "tensor": None, "block": None})
    x, floats = ir.tensor(1, (2, 3), ir.qfloat(scheme)), ir.tensor(2, (2, 3), ir.F32)
    recorder = Recorder(seed=0)
    recorder.register_tensor_data_id(1, ir.TensorData(memoryview(bytes(7)), (2, 3), x.dtype))
    recorder.register_operation(ir.Dequantize(x, floats))
    with pytest.raises(ir.IrError, match=r"t1 is declared as uint8\[10\], but is uint8\[7\]"):
        recorder.read_tensor(floats).result()
    recorder.close()
