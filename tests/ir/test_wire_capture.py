"""Recorded sessions: written and read back, foreign and damaged files, JSON lines."""

import io
import json
from pathlib import Path

import msgpack
import pytest

from ir import WireError
from ir.wire import to_json
from ir.wire.capture import CaptureReader, CaptureWriter, Frame, Header, read_messages
from ir.wire.messages import Seed, SessionInit, TaskResponse, decode_batch, message_to_json
from tests.ir.wire_samples import FIXTURES

FRAMES = [Frame(0, "c", b""), Frame(300, "s", b"abc"), Frame(70_000, "c", bytes(300)), Frame(2**40, "s", bytes(70_000))]


def _written(frames: list[Frame]) -> bytes:
    stream = io.BytesIO()
    writer = CaptureWriter(stream, "/session", "somebody")
    for frame in frames:
        writer.write(*frame)
    return stream.getvalue()


def test_what_is_written_comes_back() -> None:
    reader = CaptureReader(io.BytesIO(_written(FRAMES)))
    assert reader.header == Header("/session", "somebody")
    assert list(reader) == FRAMES


def test_the_form_is_plain_msgpack() -> None:
    values = list(msgpack.Unpacker(io.BytesIO(_written(FRAMES))))
    assert values[0] == {"format": "burn-xla-capture", "version": 1, "path": "/session", "peer": "somebody"}
    assert values[1:] == [list(frame) for frame in FRAMES]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_reading_and_writing_a_real_capture_gives_the_same_file(path: Path) -> None:
    data = path.read_bytes()
    reader = CaptureReader(io.BytesIO(data))
    stream = io.BytesIO()
    writer = CaptureWriter(stream, reader.header.path, reader.header.peer)
    for frame in reader:
        writer.write(*frame)
    assert stream.getvalue() == data


def test_every_cut_within_a_frame_is_named() -> None:
    data = _written(FRAMES[:3])
    ends = {len(_written(FRAMES[:n])) for n in range(4)}
    for end in range(1, len(data)):
        if end in ends:
            assert len(list(CaptureReader(io.BytesIO(data[:end])))) < 3
        else:
            with pytest.raises(WireError, match="bytes short") as refused:
                list(CaptureReader(io.BytesIO(data[:end])))
            assert refused.value.path.startswith(("header", "frame"))


HEADER = {"format": "burn-xla-capture", "version": 1, "path": "/", "peer": ""}


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"\x89PNG\r\n\x1a\n", "header"),
        (b"PK\x03\x04", "header"),
        (msgpack.packb({"format": "other"}), "header.format"),
        (msgpack.packb({**HEADER, "version": 2}), "header.version"),
        (msgpack.packb({**HEADER, "path": 3}), "header.path"),
        (msgpack.packb(HEADER) + msgpack.packb([1, "c"]), "frame 0"),
        (msgpack.packb(HEADER) + msgpack.packb([1, "x", b""]), "frame 0.side"),
        (msgpack.packb(HEADER) + msgpack.packb([b"", "c", b""]), "frame 0.microseconds"),
        (msgpack.packb(HEADER) + msgpack.packb([-1, "c", b""]), "frame 0.microseconds"),
        (msgpack.packb(HEADER) + msgpack.packb([1, "c", "text"]), "frame 0.data"),
        (msgpack.packb(HEADER) + b"\x93\x00\xa1c\xc6\xff\xff\xff\xff", "frame 0.data"),
    ],
)
def test_a_foreign_or_damaged_file_is_refused_by_name(data: bytes, path: str) -> None:
    with pytest.raises(WireError) as refused:
        list(CaptureReader(io.BytesIO(data)))
    assert refused.value.path == path


def test_messages_of_a_capture_and_of_its_json_lines_are_the_same(tmp_path: Path) -> None:
    found = list(read_messages(next(p for p in FIXTURES if p.stem == "mlp_fusion")))
    lines = [to_json(m) if isinstance(m, TaskResponse) else message_to_json(m) for m in found]
    (tmp_path / "mlp.jsonl").write_bytes(b"\n\n".join(lines) + b"\n")
    assert list(read_messages(tmp_path / "mlp.jsonl")) == found
    assert isinstance(found[0], SessionInit)
    assert isinstance(found[1], TaskResponse)


def test_json_lines_are_the_form_of_serde(tmp_path: Path) -> None:
    answer = {"content": {"SyncBackend": {"Ok": None}}, "id": 3}
    (tmp_path / "a.jsonl").write_text(json.dumps({"Task": {"Seed": 5}}) + "\n" + json.dumps(answer) + "\n")
    seed, response = read_messages(tmp_path / "a.jsonl")
    assert seed == Seed(5)
    assert isinstance(response, TaskResponse)
    assert (response.content.variant, response.id) == ("SyncBackend", 3)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"Task":{"Seed":5}}\n{"Task":{"Seed":"x"}}\n', "line 2: Seed.seed"),
        (b'{"Task":{"Seed":5}}\n{"Task":\n', "line 2: "),
        (b'{"content":{"SyncBackend":{"Ok":null}}}\n', "line 1: id"),
        (b"", "header"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: bytes, path: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(text)
    with pytest.raises(WireError) as refused:
        list(read_messages(tmp_path / "a.jsonl"))
    assert refused.value.path == path


def test_a_bad_frame_of_a_capture_is_named(tmp_path: Path) -> None:
    good = b"\x91\x81\xa4Task\x81\xa4Seed\x05"
    assert decode_batch(good) == [Seed(5)]
    (tmp_path / "a.bxs").write_bytes(_written([Frame(0, "c", good), Frame(1, "c", good[:-1] + b"\xc0")]))
    with pytest.raises(WireError, match=r"frame 1: Seed.seed: expected `int`, got `None` \(message 0 of 1\)"):
        list(read_messages(tmp_path / "a.bxs"))
