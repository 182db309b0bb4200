"""A captured session is what happened, and runs again."""

import io
from pathlib import Path

import numpy as np
import pytest

import ir
from ir.errors import IrError
from ir.tensor import TensorData
from ir.wire.capture import read_messages
from ir.wire.messages import Close, ReadTensor, RegisterOperation, Seed, SessionInit, SyncBackend, TaskResponse
from jax_backend import CapturingRecorder, Recorder
from jax_backend.check import outcome
from jax_backend.replay import recorded_reads, replay


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A session with uploads, random numbers, a dropped tensor, a read that nobody waited for, and a sync."""
    path = tmp_path / "session.bxs"
    with path.open("wb") as file, CapturingRecorder(Recorder(), file) as recorder:
        recorder.seed(7)
        x = recorder.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
        noise = recorder.random((2, 3))
        scaled = (x + noise) * 2
        del x, noise
        scaled.numpy()
        recorder.sync()
        recorder.read_tensor(scaled.softmax(1).description)
    return path


def test_a_replay_reads_what_was_read(capture: Path) -> None:
    recorded = recorded_reads(read_messages(capture))
    answers = list(replay(read_messages(capture), Recorder(seed=1)))
    outcomes = [outcome(a, recorded.get(a.request_id), check=True) for a in answers]
    assert [o.tensor is None for o in outcomes] == [False, True, False]
    assert all(o.is_good for o in outcomes)
    assert len(recorded) == 2
    assert all(isinstance(r.Ok, TensorData) for r in recorded.values())


def test_messages_stand_in_the_order_of_the_calls(capture: Path) -> None:
    messages = list(read_messages(capture))
    asked = [m for m in messages if not isinstance(m, TaskResponse)]
    assert isinstance(asked[0], SessionInit)
    assert isinstance(asked[1], Seed)
    assert isinstance(asked[-1], Close)
    assert [type(m).__name__ for m in asked if isinstance(m, ReadTensor | SyncBackend)] == [
        "ReadTensor",
        "SyncBackend",
        "ReadTensor",
    ]
    for answer in (m for m in messages if isinstance(m, TaskResponse)):
        request = next(m for m in asked if getattr(m, "request_id", None) == answer.id)
        assert messages.index(request) < messages.index(answer)


def test_a_dropped_tensor_is_dropped_in_the_replay_too(capture: Path) -> None:
    recorder = Recorder()
    for answer in replay(read_messages(capture), recorder):
        assert not isinstance(getattr(answer, "failure", None), IrError)
    kinds = [m.operation.op.kind for m in read_messages(capture) if isinstance(m, RegisterOperation)]
    assert kinds.count("Drop") >= 3
    assert len(recorder.handles) <= 2


def test_a_failure_is_recorded_as_one() -> None:
    stream = io.BytesIO()
    recorder = CapturingRecorder(Recorder(), stream)
    broken = recorder.record(ir.Custom, [], out_types=[((2,), ir.F32)], id="no-such-operation")
    with pytest.raises(IrError, match="no-such-operation"):
        broken.numpy()  # type: ignore[union-attr]
    recorder.close()
    assert b"no-such-operation" in stream.getvalue()
