"""`ir.verify`: one operation, a stream, and everything that real Burn clients sent."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from ir import (
    BOOL,
    BOOL_U8,
    F32,
    I8,
    I64,
    NOT_INIT,
    READ_ONLY,
    READ_WRITE,
    Add,
    ArgMax,
    Drop,
    DTypeError,
    Equal,
    Init,
    IrError,
    Matmul,
    Neg,
    Op,
    ShapeError,
    StreamError,
    TensorId,
    TensorIr,
    map_tensors,
    tensor,
)
from ir.graph import RegisteredGraph, bind_op
from ir.operation import GraphBindings
from ir.shapes import TensorType
from ir.stream import SymbolTable
from ir.verify import ENVIRONMENT, Level, StreamVerifier, level_from_environment, verify_op, verify_stream
from ir.wire.capture import read_messages
from ir.wire.messages import (
    ExecuteGraph,
    RegisterAndExecuteGraph,
    RegisterOperation,
    RegisterTensor,
    TaskResponse,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = sorted(FIXTURES.glob("*.bxs"))


def t(id: int, dims: tuple[int, ...] = (2, 3), dtype=F32, status=READ_ONLY) -> TensorIr:
    return tensor(id, dims, dtype, status)


def out(id: int, dims: tuple[int, ...] = (2, 3), dtype=F32) -> TensorIr:
    return t(id, dims, dtype, NOT_INIT)


class Uploaded(NamedTuple):
    id: int
    type: TensorType


def graph_ops(ops: tuple[Op, ...], bindings: GraphBindings, fresh: Iterator[int]) -> list[Op]:
    names = {relative.value: concrete.value for relative, concrete in bindings.tensors}

    def named(t: TensorIr) -> TensorIr:
        if t.id.value not in names:
            names[t.id.value] = next(fresh)
        return replace(t, id=TensorId(names[t.id.value]))

    return [map_tensors(bind_op(op, bindings), named) for op in ops]


def sent(path: Path) -> Iterator[Op | Uploaded]:
    """What a client sent, in order, graphs bound: every operation and every upload."""
    graphs: dict[int, tuple[Op, ...]] = {}
    inner = count(1 << 63)
    for message in read_messages(path):
        if isinstance(message, TaskResponse):
            continue
        if isinstance(message, RegisterOperation):
            yield message.operation.op
        elif isinstance(message, RegisterTensor):
            yield Uploaded(message.tensor_id.value, TensorType(message.data.shape, message.data.dtype))
        elif isinstance(message, RegisterAndExecuteGraph | ExecuteGraph):
            if isinstance(message, RegisterAndExecuteGraph):
                graphs[message.graph_id] = tuple(o.op for o in message.relative_graph)
            yield from graph_ops(graphs[message.graph_id], message.bindings, inner)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: p.stem)
def test_everything_a_burn_client_sends_is_right(path: Path) -> None:
    verifier = StreamVerifier(Level.full, closed=True)
    checked = 0
    for item in sent(path):
        if isinstance(item, Uploaded):
            verifier.define(item.id, item.type)
        else:
            verifier.check(item)
            checked += 1
    assert checked > 200


@pytest.mark.parametrize("path", [p for p in CAPTURES if "fusion" in p.stem], ids=lambda p: p.stem)
def test_graph_executions_are_right_as_entries(path: Path) -> None:
    verifier, table = StreamVerifier(Level.full), SymbolTable()
    graphs: dict[int, RegisteredGraph] = {}
    executions = 0
    for message in read_messages(path):
        if isinstance(message, RegisterOperation):
            verifier.check(message.operation.op)
        elif isinstance(message, RegisterAndExecuteGraph | ExecuteGraph):
            if isinstance(message, RegisterAndExecuteGraph):
                graphs[message.graph_id] = RegisteredGraph([o.op for o in message.relative_graph])
            verifier.check_entry(graphs[message.graph_id].entry(message.bindings, table))
            executions += 1
    assert executions > 4


def test_there_are_nine_captures() -> None:
    assert len(CAPTURES) == 9


WRONG_OPS = {
    "not-init-input": (Neg(out(0), out(1)), StreamError, r"Neg: input t0 f32\[2,3\] has the status NotInit"),
    "output-status": (Neg(t(0), t(1)), StreamError, r"Neg: output t1 .* has the status ReadOnly; expected NotInit"),
    "output-shape": (Neg(t(0), out(1, (3, 2))), ShapeError, r"Neg\.out: expected shape \(2, 3\), got \(3, 2\)"),
    "output-dtype": (Neg(t(0), out(1, dtype=I8)), DTypeError, r"Neg\.out: expected dtype f32, got i8"),
    "bool-output": (Equal(t(0), t(1), out(2)), DTypeError, r"Equal\.out: expected a bool dtype, got f32"),
    "index-output": (ArgMax(t(0), out(1, (2, 1)), 1, 1), DTypeError, r"ArgMax\.out: expected an int dtype, got f32"),
    "inputs": (Matmul(t(0), t(1), out(2)), ShapeError, r"Matmul\.rhs: expected shape \(3, n\) for lhs \(2, 3\)"),
}


@pytest.mark.parametrize(("op", "error", "match"), WRONG_OPS.values(), ids=WRONG_OPS)
def test_a_wrong_operation_is_refused_at_both_levels(op: Op, error: type[IrError], match: str) -> None:
    with pytest.raises(error, match=match):
        verify_op(op)
    for level in (Level.cheap, Level.full):
        with pytest.raises(error, match=match):
            StreamVerifier(level).check(op)
    StreamVerifier(Level.off).check(op)


@pytest.mark.parametrize("dtype", [BOOL, BOOL_U8])
def test_any_bool_store_is_accepted(dtype) -> None:
    verify_op(Equal(t(0), t(1), out(2, dtype=dtype)))


@pytest.mark.parametrize("dtype", [I8, I64])
def test_any_int_dtype_of_an_index_output_is_accepted(dtype) -> None:
    verify_op(ArgMax(t(0, dtype=I8), out(1, (2, 1), dtype), 1, 1))


def test_a_use_after_the_last_use_is_refused() -> None:
    stream = [Neg(t(0, status=READ_WRITE), out(1)), Add(t(0), t(1), out(2))]
    with pytest.raises(StreamError, match=r"op 2: Add: input t0 .* after its last use, op 1 \(Neg\)"):
        verify_stream(stream)
    verify_stream(stream, Level.cheap)


def test_a_use_after_a_drop_is_refused() -> None:
    with pytest.raises(StreamError, match=r"op 3: Neg: input t0 .* after its last use, a Drop"):
        verify_stream([Neg(t(0), out(1)), Drop(t(0, status=READ_WRITE)), Neg(t(0), out(2))])


def test_dropping_what_is_gone_is_no_error() -> None:
    verify_stream([Neg(t(0, status=READ_WRITE), out(1)), Drop(t(0, status=READ_WRITE)), Drop(t(9))])


def test_an_id_written_again_starts_over_in_another_type() -> None:
    verify_stream([Neg(t(0, status=READ_WRITE), out(1)), Neg(t(1, status=READ_WRITE), out(0)), Add(t(0), t(0), out(0))])


def test_an_id_keeps_shape_and_dtype() -> None:
    with pytest.raises(ShapeError, match=r"op 2: Neg: expected t1 as it was made, f32\[2,3\], got f32\[6\]"):
        verify_stream([Neg(t(0), out(1)), Neg(t(1, (6,)), out(2, (6,)))])
    with pytest.raises(DTypeError, match=r"op 2: Neg: expected t1 as it was made, f32\[2,3\], got i8\[2,3\]"):
        verify_stream([Neg(t(0), out(1)), Neg(t(1, dtype=I8), out(2, dtype=I8))])


def test_a_closed_stream_names_every_input_first() -> None:
    stream = [Neg(t(0), out(1))]
    verify_stream(stream)
    with pytest.raises(StreamError, match=r"op 1: Neg: input t0 .* is used before anything makes it"):
        verify_stream(stream, closed=True)
    verify_stream([Init(out(0)), *stream], closed=True)


def test_an_announcement_agrees_with_the_upload() -> None:
    verifier = StreamVerifier()
    verifier.define(0, TensorType((2, 3), F32))
    with pytest.raises(ShapeError, match=r"Init: expected t0 as it was made, f32\[2,3\], got f32\[3\]"):
        verifier.check(Init(out(0, (3,))))


def test_an_id_that_comes_from_outside_again_starts_over() -> None:
    verifier = StreamVerifier()
    verifier.check(Neg(t(0, status=READ_WRITE), out(1)))
    verifier.define(0)
    verifier.check(Neg(t(0, (6,)), out(2, (6,))))


def test_the_same_input_twice_may_carry_its_last_use_in_either_place() -> None:
    verify_stream([Add(t(0), t(0, status=READ_WRITE), out(1))])
    verify_stream([Add(t(0, status=READ_WRITE), t(0), out(1))])


def test_a_wrong_operation_leaves_its_inputs_alive() -> None:
    verifier = StreamVerifier(closed=True)
    verifier.define(0, TensorType((2, 3), F32))
    with pytest.raises(ShapeError):
        verifier.check(Neg(t(0, status=READ_WRITE), out(1, (6,))))
    verifier.check(Neg(t(0, status=READ_WRITE), out(1)))


def test_a_status_is_checked_where_the_signature_is_known() -> None:
    verifier = StreamVerifier(Level.cheap)
    verifier.check(Neg(t(0), out(1)))
    with pytest.raises(StreamError):
        verifier.check(Neg(out(0), out(1)))


def test_the_environment_names_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert level_from_environment() is Level.cheap
    monkeypatch.setenv(ENVIRONMENT, "full")
    assert level_from_environment() is Level.full
    monkeypatch.setenv(ENVIRONMENT, "everything")
    with pytest.raises(ValueError, match="BURN_XLA_VERIFY: expected off, cheap or full, got 'everything'"):
        level_from_environment()
