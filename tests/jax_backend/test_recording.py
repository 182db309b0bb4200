"""A session in single assignment, and the programs in it."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import ir
from ir import F32, I32, operation, tensor
from ir.errors import IrError, ProtocolError, StreamError, UnknownHandle
from ir.tensor import NOT_INIT, READ_ONLY, READ_WRITE, TensorData, TensorId, TensorIr, TensorStatus
from ir.wire.messages import (
    ExposeTensorLocal,
    ReadTensor,
    RegisterAlias,
    RegisterOperation,
    RegisterTensor,
    RegisterTensorLocal,
    RemoteMessage,
    Seed,
)
from jax_backend import Recorder, record
from jax_backend.cli import cli
from jax_backend.host import to_numpy
from jax_backend.program import Program
from jax_backend.recording import Recording
from jax_backend.runner import Call
from tests.sessions import FIXTURES, STREAM, as_lines, doubled_sum, f32

MLP = FIXTURES / "mlp.bxs"


def vector(id: int, status: TensorStatus = READ_ONLY) -> TensorIr:
    return tensor(id, (2,), F32, status)


def upload(id: int, *values: float) -> RegisterTensor:
    return RegisterTensor(STREAM, TensorId(id), f32(*values))


def add(lhs: TensorIr, rhs: TensorIr, out: int) -> RegisterOperation:
    return RegisterOperation(STREAM, operation(ir.Add(lhs, rhs, vector(out, NOT_INIT))))


def draw(out: int) -> RegisterOperation:
    return RegisterOperation(STREAM, operation(ir.Random(vector(out, NOT_INIT), ir.DefaultDistribution.Default)))


def recorded(tmp_path: Path, *messages: RemoteMessage) -> Recording:
    path = tmp_path / "session.jsonl"
    path.write_bytes(as_lines(messages))
    return Recording.load(path)


def test_a_small_session_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(as_lines(doubled_sum([1, 2], [3, 6])))
    program = Program.load(path)
    assert [op.kind for op in program.ops] == ["Add", "MulScalar"]
    assert [v.name for v in program.outputs] == ["t1", "t2"], "nothing is dropped in this session"
    np.testing.assert_array_equal(program()[1], [3, 6])
    np.testing.assert_array_equal(program(t0=[2, 4], op1_rhs=1.0)[1], [4, 8])


def test_an_id_that_is_used_again_is_another_tensor(tmp_path: Path) -> None:
    again = add(vector(0, READ_WRITE), vector(1), 0)
    recording = recorded(tmp_path, upload(0, 1, 2), upload(1, 10, 20), again, again, ReadTensor(1, STREAM, vector(0)))
    assert [str(op) for op in recording.ops] == [
        "Add(lhs=t0 f32[2], rhs=t1 f32[2], out=t2 f32[2])",
        "Add(lhs=t2 f32[2], rhs=t1 f32[2], out=t3 f32[2])",
    ]
    assert recording.ends == {0: 1, 2: 2}
    np.testing.assert_array_equal(recording.program(slice(None))(), [21, 42])


def test_a_tensor_lives_until_its_last_name_goes(tmp_path: Path) -> None:
    recording = recorded(
        tmp_path,
        upload(0, 1, 2),
        RegisterAlias(STREAM, TensorId(5), TensorId(0)),
        add(vector(0, READ_WRITE), vector(5), 1),
        add(vector(1), vector(5, READ_WRITE), 2),
    )
    assert [[t.id.value for t in op.inputs] for op in recording.ops] == [[0, 0], [1, 0]]
    assert recording.ends == {0: 2}
    assert recording.outputs(0, 1) == [1]


def test_a_tensor_that_is_handed_over_is_the_same_tensor(tmp_path: Path) -> None:
    key = 3
    recording = recorded(
        tmp_path,
        upload(0, 1, 2),
        ExposeTensorLocal(STREAM, vector(0, READ_WRITE), key),
        RegisterTensorLocal(STREAM, key, TensorId(8)),
        add(vector(8), vector(8), 9),
    )
    np.testing.assert_array_equal(recording.program(slice(None))(), [2, 4])
    assert recording.ends == {}


def test_what_no_session_can_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownHandle, match="Add: tensor t4 was never made, or its last use is past"):
        recorded(tmp_path, add(vector(4), vector(4), 5))
    with pytest.raises(UnknownHandle, match="tensor t0 was never made, or its last use is past"):
        recorded(tmp_path, upload(0, 1, 2), add(vector(0, READ_WRITE), vector(0), 1), add(vector(0), vector(1), 2))
    with pytest.raises(ProtocolError, match="nobody exposed tensor 8"):
        recorded(tmp_path, RegisterTensorLocal(STREAM, 3, TensorId(8)))
    with pytest.raises(StreamError, match="expected some of the 1213 operations, got 5 to 5"):
        Recording.load(MLP).program(slice(5, 5))
    with pytest.raises(StreamError, match=r"expected one of 4 segments of .*, got 4"):
        Program.load(MLP, segment=4)


def test_random_numbers_are_those_of_the_session(tmp_path: Path) -> None:
    messages = [Seed(7), draw(0), draw(1), Seed(9), draw(2)]
    recording = recorded(tmp_path, *messages)
    whole = recording.values_at(3, [0, 1, 2])
    np.testing.assert_array_equal(recording.program(slice(0, 2))(), [whole[0], whole[1]])
    np.testing.assert_array_equal(recording.program(slice(1, 2))(), whole[1])
    np.testing.assert_array_equal(recording.program(slice(2, 3))(), whole[2])
    with pytest.raises(StreamError, match="ops 0 to 3: the session seeds anew after op 2; end there"):
        recording.program(slice(0, 3))
    assert [(s.start, s.stop, s.reason) for s in recording.spans()] == [(0, 2, "seed"), (2, 3, "end")]


def test_random_numbers_before_a_seed_do_not_depend_on_it(tmp_path: Path) -> None:
    recording = recorded(tmp_path, draw(0), Seed(9), draw(1))
    whole = recording.values_at(2, [0, 1])
    np.testing.assert_array_equal(recording.program(slice(0, 1))(), whole[0])
    np.testing.assert_array_equal(recording.program(slice(1, 2))(), whole[1])


def test_the_programs_of_a_session_give_what_was_recorded() -> None:
    """Burn's own answers to the first and the last read of the training of a classifier."""
    recording = Recording.load(MLP)
    spans = recording.spans()
    assert [(s.start, s.stop) for s in spans] == [(0, 392), (392, 796), (796, 1200), (1200, 1213)]
    assert {s.reason for s in spans} == {"read"}
    assert [s.program for s in spans] == [0, 1, 1, 2]
    for read, span in ((recording.reads[n], spans[n]) for n in (0, 3)):
        got = recording.program(span).run()[f"t{read.tensor.id.value}"]
        assert read.answer is not None
        assert isinstance(read.answer.Ok, TensorData)
        np.testing.assert_allclose(got, to_numpy(read.answer.Ok), rtol=1e-4, atol=1e-5)


def test_the_executions_of_a_step_are_one_scan() -> None:
    """Executions 1 and 2 are the same four steps; what is no batch comes from the execution before."""
    recording = Recording.load(MLP)
    first, second = recording.spans()[1:3]
    carry = recording.carry(first)
    step, following = recording.program(first), recording.program(second)
    assert {"t0", "t1"}.isdisjoint(carry)
    fed = [v.name for v in step.inputs if v.name not in carry]
    others = [(a.name, b.name) for a, b in zip(step.inputs, following.inputs, strict=True)]
    varying = {a: np.stack([step.defaults[a], following.defaults[b]]) for a, b in others if a in fed}
    moving = [(a.name, b.name) for a, b in zip(step.parameters, following.parameters, strict=True)]
    varying |= {a: np.stack([step.defaults[a], following.defaults[b]]) for a, b in moving}
    twice = step.scan(2, carry, over=list(varying)).run(**varying)
    want = following.run()
    for (_, name), value in zip(carry.items(), carry.values(), strict=True):
        place = [v.name for v in step.outputs].index(value)
        np.testing.assert_allclose(twice[name], want[following.outputs[place].name], rtol=1e-4, atol=1e-5)
    with pytest.raises(StreamError, match="do not run again as a program"):
        recording.carry(second)


# ---- recording in Python


def test_a_block_is_recorded_into_a_program() -> None:
    with record() as tape:
        x = tape.input("x", (2, 3))
        w = tape.from_numpy(np.array([[1, 0], [0, 2], [1, 1]], np.float32), name="w")
        y = x @ w + 1
        del w
    program = tape.program(y, name="affine")
    assert repr(program) == "<Program affine: (x float32[2,3], w float32[3,2]) -> (t3 float32[2,2])>"
    np.testing.assert_array_equal(program(np.ones((2, 3), np.float32)), [[3, 4], [3, 4]])
    np.testing.assert_array_equal(
        program(x=np.ones((2, 3), np.float32), w=np.zeros((3, 2), np.float32)), np.ones((2, 2))
    )


def test_what_is_still_referred_to_comes_out() -> None:
    with record() as tape:
        x = tape.input("x", (2,))
        kept = tape.name((x + 1) * 2, "kept")
    assert [v.name for v in tape.program().outputs] == ["kept"]
    assert kept.shape == (2,)


def test_inputs_come_in_the_order_of_their_names() -> None:
    with record() as tape:
        a, b = tape.input("a", (2,)), tape.input("b", (2,))
        c = b - a
    np.testing.assert_array_equal(tape.program(c)([1, 2], [5, 5]), [4, 3])


def test_a_tensor_can_be_read_while_recording() -> None:
    with record() as tape:
        x = tape.from_numpy(np.arange(4, dtype=np.int32))
        assert (x * 3).numpy().tolist() == [0, 3, 6, 9]
        assert x.numpy().tolist() == [0, 1, 2, 3]
        hole = tape.input("hole", (4,), I32)
        for tensor in (hole, hole + x):
            with pytest.raises(IrError, match=r"hole.* has no (recorded )?value"):
                tensor.numpy()


def test_what_was_read_while_recording_is_in_the_file(tmp_path: Path) -> None:
    with record() as tape:
        x = tape.from_numpy(np.arange(4, dtype=np.float32), name="x")
        (x * 3).numpy()
        (x + 1).sum().numpy()
    tape.save(tmp_path / "tape.bxs")
    recording = Recording.load(tmp_path / "tape.bxs")
    assert [op.kind for op in recording.ops] == ["MulScalar", "AddScalar", "Sum"]
    answers = [r.answer.Ok for r in recording.reads if r.answer is not None]
    assert [to_numpy(a).tolist() for a in answers if isinstance(a, TensorData)] == [[0, 3, 6, 9], [10]]
    assert [s.reason for s in recording.spans()] == ["read", "read"]
    assert CliRunner().invoke(cli, ["run", "--check", str(tmp_path / "tape.bxs")]).exit_code == 0


def test_two_tensors_cannot_have_one_name() -> None:
    tape = record()
    tape.input("x", (2,))
    with pytest.raises(ValueError, match="another tensor is called 'x' already"):
        tape.input("x", (2,))


def test_random_numbers_follow_the_seed() -> None:
    made = [record(seed=seed) for seed in (1, 1, 2)]
    first, same, other = (tape.program(tape.random((3,)))() for tape in made)
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_a_recorder_hands_out_what_is_pending() -> None:
    recorder = Recorder()
    x = recorder.from_numpy(np.array([1, 2, 3], np.float32))
    early = x + 1
    early.numpy()
    late = early * 2
    program = recorder.program(late)
    assert [op.kind for op in program.ops] == ["MulScalar"]
    np.testing.assert_array_equal(program(), [4, 6, 8])
    np.testing.assert_array_equal(program(np.zeros(3, np.float32), op0_rhs=1.0), np.zeros(3))
    np.testing.assert_array_equal(late.numpy(), [4, 6, 8])
    with pytest.raises(StreamError, match=r"expected tensors that are not computed yet, got \['t2'\]"):
        recorder.program(late)


def test_the_calls_of_a_recorder_are_programs() -> None:
    """What a session on the server runs, seen by whoever watches it."""
    programs: list[Program] = []

    def watch(call: Call) -> Sequence[jax.Array]:
        programs.append(Program.of_call(call))
        return call.make()

    recorder = Recorder(watch=watch, seed=3)
    x = recorder.from_numpy(np.array([1, 2, 3, 4, 5], np.float32))
    outputs = [((x[n : n + 3] + 0.5) * recorder.random((3,))).numpy() for n in range(3)]
    assert len(programs) == 3
    for program, output in zip(programs, outputs, strict=True):
        np.testing.assert_array_equal(program()[-1], output)
    assert [p.defaults["op0_start0"].item() for p in programs] == [0, 1, 2]
