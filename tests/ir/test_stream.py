"""Keys and bindings: what makes two streams one program, and that nothing is lost on the way."""

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ir
from ir.op import SPLITTERS, Op
from ir.stream import SymbolTable, concrete_ops, relativise, segment, split_drops, survivors
from tests import cases

ROWS = list({type(c.op): c.op for family in cases.families() for c in cases.cases(family)}.values())


def t(id: int, status: ir.TensorStatus = ir.READ_ONLY, dims: tuple[int, ...] = (2, 3)) -> ir.TensorIr:
    return ir.tensor(id, dims, ir.F32, status)


def add(lhs: int, rhs: int, out: int, status: ir.TensorStatus = ir.READ_ONLY) -> Op:
    return ir.Add(t(lhs, status), t(rhs), t(out, ir.NOT_INIT))


def scaled(lhs: int, by: float, out: int) -> Op:
    return ir.MulScalar(t(lhs), ir.scalar(by), t(out, ir.NOT_INIT))


def sliced(lhs: int, start: int, length: int, out: int) -> Op:
    ranges = (ir.SliceRange(start, start + length, 1),)
    return ir.Slice(t(lhs, dims=(10,)), ranges, t(out, ir.NOT_INIT, (length,)))


def key(ops: Sequence[Op], table: SymbolTable) -> object:
    return segment([table.entry(op) for op in split_drops(ops)[0]]).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param([add(0, 1, 2)], [add(7, 3, 9)], id="ids"),
        pytest.param([scaled(0, 0.5, 1)], [scaled(0, -2.0, 1)], id="scalars"),
        pytest.param([add(0, 1, 2)], [add(0, 1, 2, ir.READ_WRITE)], id="statuses"),
        pytest.param([sliced(0, 1, 3, 1)], [sliced(0, 6, 3, 1)], id="slice starts"),
        pytest.param([add(0, 1, 2), add(2, 1, 3)], [add(0, 1, 2), ir.Drop(t(0)), add(2, 1, 3)], id="drops"),
    ],
)
def test_programs_share_a_key_whatever_their(one: list[Op], other: list[Op]) -> None:
    table = SymbolTable()
    assert key(one, table) == key(other, table)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param([add(0, 1, 2)], [add(0, 0, 2)], id="wiring"),
        pytest.param([add(0, 1, 2), add(2, 0, 3)], [add(0, 1, 2), add(2, 1, 3)], id="wiring behind"),
        pytest.param([sliced(0, 1, 3, 1)], [sliced(0, 1, 4, 1)], id="slice length"),
        pytest.param([add(0, 1, 2)], [ir.Sub(t(0), t(1), t(2, ir.NOT_INIT))], id="kind"),
        pytest.param(
            [ir.PowiScalar(t(0), ir.scalar(2), t(1, ir.NOT_INIT))],
            [ir.PowiScalar(t(0), ir.scalar(2.0), t(1, ir.NOT_INIT))],
            id="static scalar by kind",
        ),
        pytest.param(
            [ir.PowfScalar(t(0), ir.scalar(0.0), t(1, ir.NOT_INIT))],
            [ir.PowfScalar(t(0), ir.scalar(-0.0), t(1, ir.NOT_INIT))],
            id="static scalar by bits",
        ),
    ],
)
def test_programs_differ_in_their(one: list[Op], other: list[Op]) -> None:
    table = SymbolTable()
    assert key(one, table) != key(other, table)


def test_an_op_object_that_names_one_tensor_twice_does_not_lend_its_symbol_to_others() -> None:
    table = SymbolTable()
    same = t(0)
    twice, apart = table.entry(ir.Add(same, same, t(2, ir.NOT_INIT))), table.entry(add(0, 1, 2))
    assert twice.symbol is apart.symbol
    assert [x.id.value for x in twice.symbol.ops[0].inputs] == [0, 1]


def test_relativise_numbers_ids_in_first_use_order_and_keeps_survivors() -> None:
    graph, bindings = relativise([add(7, 9, 4), add(4, 7, 5, ir.READ_WRITE), ir.Drop(t(7))])
    assert bindings.ids == [7, 9, 4, 5]
    assert (graph.inputs, graph.outputs) == ((0, 1), (3,))


def test_a_drop_before_the_last_op_ends_a_result_and_a_later_one_does_not() -> None:
    table = SymbolTable()
    part = segment([table.entry(add(0, 1, 2)), table.entry(add(0, 1, 3))])
    assert survivors(part, {2: 1}) == [3]
    assert survivors(part, {2: 2}) == [2, 3]


def test_a_result_that_is_written_again_after_its_drop_survives() -> None:
    table = SymbolTable()
    part = segment([table.entry(op) for op in (add(0, 1, 2), add(0, 1, 3), add(3, 1, 2))])
    assert survivors(part, {2: 2}) == [2, 3]


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.kind)
def test_the_generated_splitter_agrees_with_the_accessors(op: Op) -> None:
    _, ids, freed, scalars, _ = SPLITTERS[type(op)].split(op)
    assert ids == tuple(x.id.value for x in (*op.inputs, *op.outputs))
    assert scalars == op.traced_scalars
    assert freed == tuple(x.id.value for x in op.inputs if x.status is ir.READ_WRITE)


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.kind)
def test_an_entry_gives_its_operation_back(op: Op) -> None:
    (back,) = concrete_ops(SymbolTable().entry(op), count(1000))
    graph, bindings = relativise([op])
    again, same = relativise([back])
    assert (again, same) == (graph, bindings)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20), st.permutations(range(30)))
def test_renaming_ids_changes_bindings_and_nothing_else(wires: list[tuple[int, int]], names: list[int]) -> None:
    ops = [add(a, b, 6 + n) for n, (a, b) in enumerate(wires)]
    renamed = [ir.map_tensors(op, lambda x: ir.tensor(names[x.id.value], (2, 3), ir.F32, x.status)) for op in ops]
    table = SymbolTable()
    (graph, bindings), (other, moved) = relativise(ops, table), relativise(renamed, table)
    assert graph == other
    assert moved.ids == [names[i] for i in bindings.ids]


def test_symbols_of_no_program_are_forgotten() -> None:
    table = SymbolTable()
    kept, _ = table.entry(add(0, 1, 2)), table.entry(scaled(0, 1.0, 1))
    table.keep_only({kept.symbol})
    assert len(table) == 1
    assert table.entry(add(3, 4, 5)).symbol is kept.symbol
