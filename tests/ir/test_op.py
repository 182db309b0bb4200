"""Fields, roles and accessors against the records of burn-ir 0.22.1."""

import json
from pathlib import Path

import msgspec
import pytest

import ir
from ir.op import Op, Role, fields, map_tensors
from ir.registry import forms, kind
from ir.slices import SliceRange
from tests import cases

REGISTRY = json.loads((Path(__file__).parents[1] / "golden" / "registry.json").read_text())
ONE_RELEASE_ONLY = {"Rfft", "IRfft"}  # of 0.22.0-pre.2: not in the registry of 0.22.1
ROWS = {type(c.op): c.op for family in cases.families() for c in cases.cases(family)}


def record_of(path: str) -> str | None:
    family, _, name = path.partition(".")
    inner = "Base" if family.startswith("Base") else "Numeric" if family.startswith("Numeric") else family
    return REGISTRY["records"][f"{inner}OperationIr"][name]


PATHS = [p for p, f in forms().items() if "." in p and f.kind.__name__ not in ONE_RELEASE_ONLY]


def test_there_are_330_forms_and_328_of_them_in_burn_0_22_1() -> None:
    assert len(forms()) == 330
    assert sum(f.kind.__name__ not in ONE_RELEASE_ONLY for f in forms().values()) == 328


@pytest.mark.parametrize("path", PATHS)
def test_fields_stand_in_burns_order_under_burns_names(path: str) -> None:
    record = record_of(path)
    names = [f.encode_name for f in msgspec.structs.fields(forms()[path].kind)]
    assert names == (REGISTRY["fields"][record] if record else [])


@pytest.mark.parametrize("path", [p for p in REGISTRY["operands"] if p != "Custom"])
def test_roles_name_the_operands_that_burns_accessors_give(path: str) -> None:
    inner, _, name = path.partition(".")
    if not name:
        return
    kinds = {f.kind for p, f in forms().items() if p.endswith(f".{name}") and record_of(p) and inner[:3] in p}
    expected = REGISTRY["operands"][path]
    for cls in kinds:
        told = fields(cls)
        assert {base(f.path) for f in told if f.is_input} == {base(x) for x in expected["inputs"]}
        assert {base(f.path) for f in told if f.is_output} == {base(x) for x in expected["outputs"]}
        assert any(f.role is Role.RANGES for f in told) == bool(expected["ranges"])


def base(path: str) -> str:
    """`tensors[0]` -> `tensors`, `qparams.global_` -> `qparams.global`."""
    return path.partition("[")[0].rstrip("_")


@pytest.mark.parametrize("op", ROWS.values(), ids=lambda op: op.kind)
def test_every_tensor_is_visited_once(op: Op) -> None:
    seen: list[ir.TensorIr] = []
    same = map_tensors(op, lambda x: seen.append(x) or x)
    assert same == op
    assert sorted(map(str, seen)) == sorted(map(str, (*op.inputs, *op.outputs)))


def test_an_operation_prints_its_operands_with_dtype_and_shape() -> None:
    op = ir.Matmul(ir.tensor(3, (32, 784), ir.F32), ir.tensor(9, (784, 10), ir.F32), ir.tensor(4, (32, 10), ir.F32))
    assert str(op) == "Matmul(lhs=t3 f32[32,784], rhs=t9 f32[784,10], out=t4 f32[32,10])"


def test_a_not_init_input_is_refused_by_name() -> None:
    from ir.stream import SymbolTable

    op = ir.Add(ir.tensor(0, (2,), ir.F32, ir.NOT_INIT), ir.tensor(1, (2,), ir.F32), ir.tensor(2, (2,), ir.F32))
    with pytest.raises(ir.StreamError, match=r"Add: input t0 f32\[2\] has the status NotInit"):
        SymbolTable().entry(op)


def test_kinds_cannot_be_declared_once_the_registry_is_frozen() -> None:
    with pytest.raises(RuntimeError, match="frozen"):
        kind("Float")(ir.Add)


@pytest.mark.parametrize(
    ("item", "size", "visited"),
    [
        (SliceRange(1, 8, -3), 10, [7, 4, 1]),
        (SliceRange(-4, None, 2), 10, [6, 8]),
        (SliceRange(2, 100, 4), 10, [2, 6]),
        (SliceRange(3, -20, 1), 10, []),
        (SliceRange(0, None, -1), 4, [3, 2, 1, 0]),
        (SliceRange(2, 8, -3), 10, [7, 4]),
        (SliceRange(5, 5, -2), 10, []),
    ],
)
def test_a_slice_visits(item: SliceRange, size: int, visited: list[int]) -> None:
    from ir.slices import window

    assert list(window(item, size).indices) == visited


def test_scalars_compare_by_kind_and_bits() -> None:
    nan = ir.ScalarIr(Float=float("nan"))
    assert nan == ir.ScalarIr(Float=float("nan"))
    assert ir.ScalarIr(Float=0.0) != ir.ScalarIr(Float=-0.0)
    assert ir.ScalarIr(Int=1) != ir.ScalarIr(Float=1.0)
    assert ir.ScalarIr(Int=1) != ir.ScalarIr(UInt=1)
    assert len({nan, ir.ScalarIr(Float=float("nan")), ir.ScalarIr(Int=1), ir.ScalarIr(Bool=True)}) == 3


def test_tensor_data_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ir.ShapeError, match=r"expected 24 bytes for f32\[2,3\], got 20"):
        ir.TensorData(memoryview(bytes(20)), (2, 3), ir.F32)
