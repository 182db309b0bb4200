"""Recorded sessions of real Burn programs, played into a recorder, against the answers of Burn's own server."""

import pytest

from ir import F32, tensor
from ir.errors import ProtocolError
from ir.tensor import TensorId
from ir.wire.capture import read_messages
from ir.wire.messages import (
    Close,
    ExposeTensorLocal,
    ReadTensor,
    RegisterAlias,
    RegisterTensor,
    RegisterTensorLocal,
    Seed,
    SessionId,
    SyncBackend,
)
from jax_backend.check import Outcome, outcome
from jax_backend.host import to_numpy
from jax_backend.recorder import Recorder
from jax_backend.replay import Read, Replay, Sync, recorded_reads, replay
from tests.sessions import FIXTURES, STREAM, f32


def outcomes(name: str, recorder: Recorder) -> list[Outcome]:
    """Every answer of a session, compared."""
    path = FIXTURES / f"{name}.bxs"
    recorded = recorded_reads(read_messages(path))
    return [outcome(a, recorded.get(a.request_id), check=True) for a in replay(read_messages(path), recorder)]


@pytest.mark.parametrize(
    ("name", "reads", "operations"),
    [
        ("tour", 142, 208),
        ("mlp", 4, 1213),
        ("mlp_fusion", 4, 1433),
        ("lstm", 3, 4654),
        ("cnn", 3, 1707),
    ],
)
def test_a_session_gives_the_recorded_answers(name: str, reads: int, operations: int) -> None:
    recorder = Recorder(name=name, seed=0)
    found = outcomes(name, recorder)
    assert [o for o in found if not o.is_good] == []
    assert sum(o.comparison is not None for o in found) == reads
    assert recorder.stats.operations == operations
    assert recorder.stats.failures == 0


def test_eager_gives_the_recorded_answers() -> None:
    recorder = Recorder(eager=True, seed=0)
    found = outcomes("tour", recorder)
    assert [o for o in found if not o.is_good] == []
    assert recorder.cache.stats.compiles == 0
    # Burn's Flex answers an i32 argmin with i64: no difference, but said.
    assert "recorded as i64" in {o.comparison.note for o in found if o.comparison}


def test_aliases_seeds_syncs_and_local_transfers() -> None:
    session = Replay(Recorder())
    messages = [
        Seed(5),
        RegisterTensor(STREAM, TensorId(0), f32(1, 2)),
        RegisterAlias(STREAM, TensorId(1), TensorId(0)),
        ExposeTensorLocal(STREAM, tensor(0, (2,), F32), 9),
        RegisterTensorLocal(STREAM, 9, TensorId(2)),
    ]
    assert [session.play(m) for m in messages] == [None] * len(messages)
    assert session.play(SyncBackend(3, STREAM)) == Sync(3, None)
    for id in (1, 2):
        read = session.play(ReadTensor(id, STREAM, tensor(id, (2,), F32)))
        assert isinstance(read, Read)
        assert to_numpy(read.result.result()).tolist() == [1, 2]
    assert session.play(Close(SessionId(1))) is None


def test_a_transfer_that_nobody_exposed_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"nobody exposed tensor 0 before it is taken"):
        Replay(Recorder()).play(RegisterTensorLocal(STREAM, 4, TensorId(0)))
