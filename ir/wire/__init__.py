"""Burn's IR as bytes: serde's compact msgpack and serde's JSON, and the messages of the remote protocol.

    values      plain values that no operation holds
    release     what differs between Burn's releases: PROTOCOL_2, PROTOCOL_1, UNION
    codec       operations and every other value of the IR, both formats, both directions
    messages    the remote protocol: batches of the client, answers of the server, `/data`
    capture     recorded sessions as files
    layout      the walker that all of them share

Promise: `decode(encode(m)) = m`, byte-identical to rmp-serde; an unknown variant, a missing or an extra field is a
`WireError` that names the path; a size is believed only after the bytes it speaks of were seen.
"""

from ir.wire.codec import decode, decode_operation, encode, encode_operation, from_json, to_json
from ir.wire.release import PROTOCOL_1, PROTOCOL_2, UNION, Release

__all__ = [
    "PROTOCOL_1",
    "PROTOCOL_2",
    "UNION",
    "Release",
    "decode",
    "decode_operation",
    "encode",
    "encode_operation",
    "from_json",
    "to_json",
]
