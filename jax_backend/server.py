"""The WebSocket server: routes, admission, sessions, figures, shutdown.

One event loop does all socket work; each session has threads of its own (`session_connection`), so that neither a
compilation nor a device holds up another session. Queues are bounded at both ends: a session that does not keep up is
not read from, and one whose client does not read is not worked for.

Frames are parsed by picows 2.3: small operations cost 0.4 us each on their way through the socket, besides 1.8 us of
decoding; with websockets 17 it was 1.2 us (lstm.bxs replayed through each in one run, one core).

Routes: `/session`, `/data` (other servers fetch exposed tensors), `/healthz`, `/metrics`.
"""

import asyncio
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from picows import WSListener, WSUpgradeRequest, WSUpgradeResponse, WSUpgradeResponseWithListener
from picows import ws_create_server as create_server

from ir.tensor import TensorData
from jax_backend.dispatch import RemoteTransfer
from jax_backend.metrics import Counts, Snapshot, device_use, prometheus
from jax_backend.peers import DataConnection, fetch, url_of
from jax_backend.remote import Host
from jax_backend.session_connection import Report, SessionConnection, Shared

MAX_DATA_CONNECTIONS: Final = 64

_POLL_S: Final = 0.02
_JSON: Final = {"Content-Type": "application/json"}
_PROMETHEUS: Final = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


@dataclass(frozen=True)
class Options:
    """Where a server listens and what it admits; times in seconds.

    Args:
        host: the address; by default only this machine gets in.
        port: 0 takes a free one.
        max_message_bytes: Burn's own limit is 1 GiB.
        max_sessions: open at once.
        handshake_s: how long a client may be silent first.
        transfer_s: how long a session waits for a tensor that another one or another server exposes.
        peers: servers to fetch from beside this machine, `host` or `host:port`; `*` is any.
        origins: web pages that may connect; Burn's native clients are none.
        capture: folder that gets a recording of each session.
    """

    host: str = "127.0.0.1"
    port: int = 3000
    max_message_bytes: int = 2**30
    max_sessions: int = 64
    handshake_s: float = 60.0
    transfer_s: float = 300.0
    peers: Collection[str] = ()
    origins: Collection[str] = ()
    capture: Path | None = None


class Server:
    """Serves `host` to Burn clients. Everything but `report` is to be called on the event loop.

    Args:
        host: devices, programs, token, limits.
        options: where and whom.
        report: takes events, from any thread.
    """

    def __init__(self, host: Host, options: Options, report: Report) -> None:
        self._host = host
        self._options = options
        self._report = report
        self._sessions: set[SessionConnection] = set()
        self._data: set[DataConnection] = set()
        self._past = Counts()
        self._numbers = count(1)
        self._is_stopping = False
        self._executor = ThreadPoolExecutor(4, "data")
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._shared = Shared(
            host,
            report,
            self._fetch,
            self._open_capture,
            self._sessions.add,
            self._ended,
            options.max_message_bytes,
            options.handshake_s,
            options.transfer_s,
        )

    async def start(self) -> int:
        """Listen. Returns the port.

        Raises:
            OSError: the address cannot be had.
        """
        options = self._options
        if options.capture is not None:
            options.capture.mkdir(parents=True, exist_ok=True)
        self._server = await create_server(
            self._route,
            options.host,
            options.port,
            max_frame_size=options.max_message_bytes,
            websocket_handshake_timeout=options.handshake_s,
        )
        self._sweeper = asyncio.create_task(self._sweep())
        return self._server.sockets[0].getsockname()[1]

    async def stop(self, grace_s: float) -> bool:
        """Admit nobody more, do what is queued, answer, close; whoever takes longer than `grace_s` is cut off.

        Returns whether every session's thread has ended.
        """
        assert self._server is not None
        assert self._sweeper is not None
        self._is_stopping = True
        self._server.close()
        self._sweeper.cancel()
        for connection in self._data.copy():
            connection.close(None)
        await asyncio.sleep(_POLL_S)  # what has arrived in the sockets is in flight too
        for connection in self._sessions:
            connection.drain("the server is stopping")
        deadline = time.monotonic() + grace_s
        while self._sessions and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
        if self._sessions:
            self._report("cut_off", None, f"{len(self._sessions)} sessions did not end within {grace_s:g} s", {})
            for connection in self._sessions.copy():
                connection.close(None)
            await asyncio.sleep(_POLL_S)
        self._executor.shutdown(wait=False, cancel_futures=True)
        return not self._sessions

    def snapshot(self) -> Snapshot:
        """What is going on."""
        counts = Counts()
        counts.add(self._past)
        transfers = self._host.transfers
        snapshot = Snapshot(
            counts, self._host.cache.stats, exposed_tensors=len(transfers.local) + len(transfers.remote)
        )
        snapshot.loop_cpu_s = time.thread_time()
        uses = [device_use(device) for device in self._host.devices]
        for connection in self._sessions:
            counts.add(connection.counts)
            recorder = connection.session.recorder
            if recorder is not None:
                use = uses[connection.session.device_index]
                use.sessions += 1
                use.live_bytes += recorder.handles.size_bytes
                snapshot.live_tensors += len(recorder.handles)
                snapshot.open_sessions += 1
        snapshot.devices = uses
        return snapshot

    # ---- connections

    def _route(self, request: WSUpgradeRequest) -> WSListener | WSUpgradeResponseWithListener | None:
        path = request.path.partition(b"?")[0]
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._options.origins:
            # A browser lets any page connect to this machine, and says which page it is.
            return _refusal(HTTPStatus.FORBIDDEN, f"pages of {origin} may not connect; see --origin")
        match path:
            case b"/session":
                return self._admit()
            case b"/data":
                if len(self._data) >= MAX_DATA_CONNECTIONS:
                    return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_DATA_CONNECTIONS} transfers are under way")
                return self._data_connection()
            case b"/healthz":
                state = "stopping" if self._is_stopping else "ok"
                return _page(msgspec.json.encode({"status": state, "sessions": len(self._sessions)}), _JSON)
            case b"/metrics":
                return _page(prometheus(self.snapshot()).encode(), _PROMETHEUS)
            case _:
                return None

    def _admit(self) -> WSListener | WSUpgradeResponseWithListener:
        limit = self._options.max_sessions
        if self._is_stopping or len(self._sessions) >= limit:
            why = "this server is stopping" if self._is_stopping else f"{limit} sessions are open, see --max-sessions"
            self._past.refused += 1
            self._report("refused", None, why, {})
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, why)
        return SessionConnection(next(self._numbers), self._shared)

    def _data_connection(self) -> WSListener:
        number = -next(self._numbers)
        return DataConnection(
            self._host.transfers,
            number,
            self._data,
            self._executor,
            self._options.max_message_bytes,
            lambda reason: self._report("data_refused", None, reason, {}),
        )

    def _ended(self, connection: SessionConnection) -> None:
        self._sessions.discard(connection)
        counts = connection.counts
        self._past.add(counts)
        reason = connection.end.reason
        name = "refused" if counts.refused else "ended"
        fields = {"peer": connection.peer, "reason": reason, "operations": counts.operations}
        text = f"{connection.peer}: {reason}, {counts.operations} operations"
        self._report(name, connection.number, text, fields)

    def _open_capture(self, number: int) -> BinaryIO | None:
        folder = self._options.capture
        if folder is None:
            return None
        return (folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{number:04}.bxs").open("xb")

    async def _fetch(self, awaited: RemoteTransfer) -> TensorData:
        options = self._options
        return await fetch(url_of(awaited.peer, options.peers), awaited.key, options.max_message_bytes)

    async def _sweep(self) -> None:
        """Forget exposed tensors that nobody comes for."""
        while True:
            await asyncio.sleep(self._options.transfer_s)
            self._host.transfers.remote.sweep()
            self._host.transfers.local.sweep()


def _page(body: bytes, headers: dict[str, str]) -> WSUpgradeResponseWithListener:
    return WSUpgradeResponseWithListener(WSUpgradeResponse.create_ok_response(body, headers), None)


def _refusal(status: HTTPStatus, why: str) -> WSUpgradeResponseWithListener:
    return WSUpgradeResponseWithListener(WSUpgradeResponse.create_error_response(status, f"{why}\n".encode()), None)
