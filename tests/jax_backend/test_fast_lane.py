"""What the fast lane records is what the long way records, whatever the bytes."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import ir
from ir.errors import WireError
from ir.op import Op
from ir.ops.control import Drop, Init
from ir.stream import Entry, SymbolTable
from ir.wire.capture import CaptureReader
from ir.wire.messages import RegisterOperation, Task, decode_batch, encode_batch, split_batch
from ir.wire.values import StreamId
from jax_backend.fast_lane import MAX_FRAME_BYTES, FastLane

FIXTURES = Path(__file__).parent.parent / "fixtures"
REFUSED = "refused"


def operations(frame: bytes) -> list[RegisterOperation]:
    return [m for m in decode_batch(frame) if isinstance(m, RegisterOperation)]


class Lane:
    """A fast lane, driven as a session drives it, and what it records."""

    def __init__(self) -> None:
        self.symbols = SymbolTable()
        self.told: list[Entry | int] = []
        self.lane = FastLane(self.told.append, self.told.append, self.symbols)
        self.num_long = 0

    def send(self, frame: bytes) -> list[Entry | int] | str:
        """What a frame leads to."""
        self.told.clear()
        rest = self.lane.take(frame)
        if rest is None:
            return list(self.told)
        try:
            messages = decode_batch(rest)
        except WireError:
            return REFUSED
        for message, data in zip(messages, split_batch(rest), strict=True):
            if isinstance(message, RegisterOperation):
                self.num_long += 1
                self.told += expected([message], self.symbols)
                self.lane.learn(bytes(data), message.operation)
        return list(self.told)

    def expect(self, frame: bytes) -> list[Entry | int] | str:
        """What it has to lead to."""
        try:
            return expected(operations(frame), self.symbols)
        except WireError:
            return REFUSED


def expected(messages: Iterable[RegisterOperation], symbols: SymbolTable) -> list[Entry | int]:
    told: list[Entry | int] = []
    for message in messages:
        op = message.operation.op
        if isinstance(op, Drop):
            told.append(op.tensor.id.value)
        elif not isinstance(op, Init):
            told.append(symbols.entry(op))
    return told


def client_frames(name: str) -> list[bytes]:
    with (FIXTURES / f"{name}.bxs").open("rb") as stream:
        return [frame.data for frame in CaptureReader(stream) if frame.side == "c"][1:]


def batch(*ops: Op) -> bytes:
    messages: list[Task] = [RegisterOperation(StreamId(0), ir.operation(op)) for op in ops]
    return encode_batch(messages)


def t(id: int, status: ir.TensorStatus = ir.READ_ONLY, dims: tuple[int, ...] = (2, 3)) -> ir.TensorIr:
    return ir.TensorIr(ir.TensorId(id), ir.Shape(dims), status, ir.F32)


def trained(make: Callable[[int], bytes], times: int = 4) -> Lane:
    """A lane that knows the frames `make(0)`, `make(1)`, ... which differ in ids."""
    lane = Lane()
    for n in range(times):
        assert lane.send(make(n)) == lane.expect(make(n))
    return lane


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "transformer"])
def test_a_recorded_session_is_recorded_the_same_by_both_ways(name: str) -> None:
    lane = Lane()
    frames = client_frames(name)
    for _ in range(3):
        lane.num_long = 0
        for frame in frames:
            assert lane.send(frame) == lane.expect(frame)
    # Four steps are few, and in the first ones ids are small.
    assert lane.num_long < sum(len(operations(frame)) for frame in frames) / 6


def three(n: int) -> bytes:
    first = 1000 + 10 * n
    return batch(
        ir.Matmul(t(first), t(first + 1, ir.READ_WRITE, (3, 3)), t(first + 2, ir.NOT_INIT)),
        ir.MulScalar(t(first + 2, ir.READ_WRITE), ir.scalar(0.5 + n), t(first + 3, ir.NOT_INIT)),
        Drop(t(first + 3, ir.READ_WRITE)),
    )


def test_a_known_frame_is_taken_as_a_whole() -> None:
    lane = trained(three)
    lane.num_long = 0
    assert lane.send(three(9)) == lane.expect(three(9))
    assert lane.num_long == 0


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_changed_byte_means_what_it_says(mask: int) -> None:
    lane = trained(three)
    frame = three(5)
    for place in range(len(frame)):
        changed = bytearray(frame)
        changed[place] ^= mask
        node = lane.lane._node
        assert lane.send(bytes(changed)) == lane.expect(bytes(changed)), place
        lane.lane._node = node


def test_a_frame_that_is_cut_short_or_goes_on_is_refused() -> None:
    lane = trained(three)
    frame = three(5)
    node = lane.lane._node
    for data in (b"", b"\xc1", b"\x01", frame + b"\xc0", *(frame[:n] for n in range(1, len(frame)))):
        assert lane.send(data) == REFUSED
        lane.lane._node = node


def test_ids_of_every_width() -> None:
    lane = Lane()
    for first in (1, 100, 127, 128, 200, 250, 255, 256, 65_530, 65_536, 2**32 - 3, 2**32, 2**63, 2**64 - 9):
        for n in range(4):
            frame = batch(ir.Add(t(first + n), t(first + n), t(first + n + 1, ir.NOT_INIT)))
            assert lane.send(frame) == lane.expect(frame)


def test_scalars_keep_their_bits_and_their_kind() -> None:
    def frame(n: int, value: ir.ScalarIr) -> bytes:
        return batch(ir.AddScalar(t(500 + n), value, t(501 + n, ir.NOT_INIT)))

    lane = trained(lambda n: frame(n, ir.scalar(1.0 + n)))
    for n, value in enumerate([0.0, -0.0, math.nan, math.inf, 5e-324, 3, -(2**40), 2**63, True, 1.0]):
        data = frame(n, ir.scalar(value))
        assert lane.send(data) == lane.expect(data)


def test_slices_that_move_are_never_mistaken_for_each_other() -> None:
    def frame(n: int) -> bytes:
        ranges = (ir.SliceRange(n, n + 1, 1), ir.SliceRange(0, 3, 1))
        return batch(ir.Slice(t(500 + n, dims=(40, 3)), ranges, t(501 + n, ir.NOT_INIT, (1, 3))))

    trained(frame, times=30)


def test_a_status_that_changes_frees_what_it_says() -> None:
    def frame(n: int) -> bytes:
        status = ir.READ_WRITE if n % 3 else ir.READ_ONLY
        return batch(ir.Add(t(500 + n, status), t(900 + n), t(901 + n, ir.NOT_INIT)))

    trained(frame, times=12)


def test_symbols_that_were_forgotten_are_not_used_again() -> None:
    lane = trained(three)
    lane.symbols.keep_only(set())
    for n in range(5, 9):
        assert lane.send(three(n)) == lane.expect(three(n))


def test_what_is_longer_than_a_frame_of_operations_goes_the_long_way() -> None:
    def frame(n: int) -> bytes:
        return batch(*(ir.Add(t(m), t(m), t(m + 1, ir.NOT_INIT, (2,) * 5000)) for m in range(1000, 1015)))

    assert len(frame(0)) > MAX_FRAME_BYTES
    lane = trained(frame)
    lane.num_long = 0
    assert lane.send(frame(0)) == lane.expect(frame(0))
    assert lane.num_long == 15
