"""The oracle answers a handful of cases whose values are known by hand."""

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from tests.burn.oracle import ORACLE, Oracle, build

Raw: TypeAlias = Any


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle(build(ORACLE)) as oracle:
        yield oracle


def tensor(number: int, shape: list[int], status: str = "ReadOnly", dtype: str = "F32") -> Raw:
    return [[number], [shape], status, dtype]


def out(number: int, shape: list[int], dtype: str = "F32") -> Raw:
    return tensor(number, shape, "NotInit", dtype)


def f32(shape: list[int], *values: float) -> Raw:
    return [struct.pack(f"<{len(values)}f", *values), shape, "F32"]


def i64(shape: list[int], *values: int) -> Raw:
    return [struct.pack(f"<{len(values)}q", *values), shape, "I64"]


def add(lhs: Raw, rhs: Raw, result: Raw) -> Raw:
    return {"NumericFloat": ["F32", {"Add": [lhs, rhs, result]}]}


ADD = [
    None,
    [[1, f32([2], 1.5, -2.0)], [2, f32([2], 0.25, 2.0)]],
    [],
    [add(tensor(1, [2]), tensor(2, [2]), out(3, [2]))],
    [tensor(3, [2])],
]
ADDED = {"ok": [f32([2], 1.75, 0.0)], "live": [1, 2, 3]}
MISSING: Raw = [None, [], [], [add(tensor(1, [2]), tensor(1, [2]), out(3, [2]))], [tensor(3, [2])]]
MATMUL = {"Float": ["F32", {"Matmul": [tensor(1, [2, 3]), tensor(2, [3, 1]), out(3, [2, 1])]}]}
ARGMAX = {"NumericFloat": ["F32", {"ArgMax": [tensor(1, [2, 3]), out(2, [2, 1], "I64"), 1, 1]}]}
SLICE = {"BaseFloat": {"Slice": [tensor(1, [9]), [[2, 8, -3]], out(2, [2])]}}


def test_add(oracle: Oracle) -> None:
    assert oracle.run([ADD]) == [ADDED]


def test_matmul(oracle: Oracle) -> None:
    case = [None, [[1, f32([2, 3], 1, 2, 3, 4, 5, 6)], [2, f32([3, 1], 1, 0, -1)]], [], [MATMUL], [tensor(3, [2, 1])]]
    assert oracle.run([case])[0]["ok"] == [f32([2, 1], -2, -2)]


def test_argmax_takes_the_first_nan_and_the_first_of_equals(oracle: Oracle) -> None:
    case = [
        None,
        [[1, f32([2, 3], 9, float("nan"), float("nan"), 4, 7, 7)]],
        [],
        [ARGMAX],
        [tensor(2, [2, 1], dtype="I64")],
    ]
    assert oracle.run([case])[0]["ok"] == [i64([2, 1], 1, 1)]


def test_slice_with_negative_step_walks_the_range_from_its_end(oracle: Oracle) -> None:
    case = [None, [[1, f32([9], *range(9))]], [], [SLICE], [tensor(2, [2])]]
    assert oracle.run([case])[0]["ok"] == [f32([2], 7, 4)]


def test_read_write_use_frees_the_id(oracle: Oracle) -> None:
    op = add(tensor(1, [2], "ReadWrite"), tensor(2, [2]), out(3, [2]))
    case = [*ADD[:3], [op], [tensor(3, [2], "ReadWrite")]]
    assert oracle.run([case]) == [{"ok": ADDED["ok"], "live": [2]}]


def test_alias_outlives_its_source(oracle: Oracle) -> None:
    case = [None, [[1, f32([1], 5)]], [[7, 1]], [{"Drop": tensor(1, [1])}], [tensor(7, [1])]]
    assert oracle.run([case]) == [{"ok": [f32([1], 5)], "live": [7]}]


def test_seed_repeats_the_draw(oracle: Oracle) -> None:
    op = {"Float": ["F32", {"Random": [out(1, [5]), "Default"]}]}
    draws = oracle.run([[seed, [], [], [op], [tensor(1, [5])]] for seed in (3, 3, 4)])
    assert draws[0] == draws[1] != draws[2]


def test_panic_says_where_and_leaves_the_next_case_alone(oracle: Oracle) -> None:
    failed, added = oracle.run([MISSING, ADD])
    assert failed["panic"]["stage"] == "op"
    assert failed["panic"]["op_index"] == 0
    assert failed["panic"]["location"].startswith("burn-ir-0.22.1/src/handle.rs:")
    assert "1" in failed["panic"]["message"]
    assert failed["live"] == []
    assert added == ADDED


def test_failed_read_is_an_error_beside_the_others(oracle: Oracle) -> None:
    answer = oracle.run([[*ADD[:4], [tensor(3, [2]), tensor(9, [2])]]])[0]
    assert answer["ok"][0] == ADDED["ok"][0]
    assert "error" in answer["ok"][1]


def test_case_that_does_not_decode_is_named_invalid(oracle: Oracle) -> None:
    unknown: Raw = [None, [], [], [{"Nonsense": []}], []]
    invalid, truncated, added = oracle.run([unknown, b"\x95\xc0", ADD])
    assert "Nonsense" in invalid["invalid"]
    assert "invalid" in truncated
    assert added == ADDED


def test_abort_marks_its_case_and_the_next_one_runs(oracle: Oracle) -> None:
    huge = {"BaseFloat": {"Zeros": [out(1, [1 << 40])]}}
    aborted, added = oracle.run([[None, [], [], [huge], []], ADD])
    assert aborted == {"abort": "the process ended with status -6"}
    assert added == ADDED


def test_many_cases_do_not_block_the_pipes(oracle: Oracle) -> None:
    wide: Raw = [None, [[1, f32([50_000], *[0.5] * 50_000)]], [], [], [tensor(1, [50_000])]]
    answers = oracle.run([wide] * 40)
    assert len(answers) == 40
    assert all(answer["ok"] == [wide[1][0][1]] for answer in answers)
