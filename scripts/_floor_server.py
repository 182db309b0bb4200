"""A server that computes nothing: it greets, answers each read with zeros, and each sync at once.

    python scripts/_floor_server.py

prints its port. What a client takes per step against it is the client's own time, the floor under every server.
"""

import asyncio

from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

from ir.tensor import TensorData, TensorIr
from ir.wire.messages import (
    DTypeUsage,
    ReadTensor,
    SessionInfo,
    SessionInit,
    SyncBackend,
    TaskResponse,
    TaskResponseContent,
    TensorResult,
    UnitResult,
    decode_batch,
    encode_response,
)
from jax_backend.dispatch import num_bytes
from jax_backend.remote import SETTINGS

REQUESTS = (b"ReadTensor", b"SyncBackend", b"DTypeUsage", b"Init")
MAX_FRAME_BYTES = 2**30


class Floor(WSListener):
    """One session."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Called by picows for each frame. Only frames that may hold a request are decoded."""
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
        if frame.msg_type != WSMsgType.BINARY:
            return
        data = frame.get_payload_as_bytes()
        # Uploads come alone, and their bytes may hold anything.
        if b"RegisterTensor" in data[:40] or not any(name in data for name in REQUESTS):
            return
        for message in decode_batch(data):
            if (response := answer(message)) is not None:
                transport.send(WSMsgType.BINARY, encode_response(response))


def answer(message: object) -> TaskResponse | None:
    """What a client needs to go on."""
    match message:
        case SessionInit(version=version):
            return TaskResponse(TaskResponseContent(Init=SessionInfo(version, SETTINGS, 1, None)), 0)
        case ReadTensor(request_id=id, tensor=tensor):
            return TaskResponse(TaskResponseContent(ReadTensor=TensorResult(Ok=zeros(tensor))), id)
        case SyncBackend(request_id=id):
            return TaskResponse(TaskResponseContent(SyncBackend=UnitResult(Ok=None)), id)
        case DTypeUsage(request_id=id):
            return TaskResponse(TaskResponseContent(DTypeUsage=3), id)
        case _:
            return None


def zeros(tensor: TensorIr) -> TensorData:
    return TensorData(bytes(num_bytes(tensor)), tensor.shape.dims, tensor.dtype)


async def main() -> None:
    """Serve until killed."""

    def session(request: WSUpgradeRequest) -> WSListener:
        return Floor()

    server = await ws_create_server(session, "127.0.0.1", 0, max_frame_size=MAX_FRAME_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
