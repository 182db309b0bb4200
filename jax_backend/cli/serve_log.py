"""What `burn-xla serve` shows: a line per event, and the state of the server where there is a terminal."""

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from jax_backend.cli.text import size

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

    from jax_backend.metrics import Snapshot


class Log:
    """Writes events to stderr, for people or as JSON lines; any thread may call.

    With a terminal, the state of the server stands below the lines.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()
        self._live = None if as_json or not sys.stderr.isatty() else _live()
        self._before: tuple[float, int] = (time.monotonic(), 0)
        if self._live is not None:
            self._live.start()

    def __call__(self, name: str, session: int | None, text: str, fields: dict[str, Any]) -> None:
        """Write one event."""
        with self._lock:
            if self._as_json:
                event = {"time": round(time.time(), 3), "event": name, "session": session, "text": text, **fields}
                print(msgspec.json.encode(event).decode(), file=sys.stderr, flush=True)
                return
            where = "" if session is None else f"session {session}: "
            line = f"{time.strftime('%H:%M:%S')} {name:<9} {where}{text}"
            if self._live is not None:
                self._live.console.print(line, markup=False, highlight=False)
            else:
                print(line, file=sys.stderr, flush=True)

    def show(self, snapshot: "Snapshot") -> None:
        """Renew the state below the lines."""
        if self._live is not None:
            now, before = time.monotonic(), self._before
            self._before = now, snapshot.counts.operations
            elapsed_s = max(now - before[0], 1e-3)
            self._live.update(state(snapshot, (snapshot.counts.operations - before[1]) / elapsed_s), refresh=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()


def _live() -> "Live":
    from rich.console import Console
    from rich.live import Live

    return Live(console=Console(stderr=True), auto_refresh=False, transient=True)


def state(snapshot: "Snapshot", operations_per_s: float) -> "Group":
    """The state of a server: a line, and a table with one row per device."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    counts, cache = snapshot.counts, snapshot.cache
    line = (
        f"{snapshot.open_sessions} sessions, {max(operations_per_s, 0):,.0f} ops/s, {cache.compiles} compiled in "
        f"{cache.compile_s:.1f} s, {snapshot.hit_rate:.1%} hits, {counts.failures} failures"
    )
    table = Table("device", "sessions", "live tensors", "in use")
    for use in snapshot.devices:
        used = "" if use.used_bytes is None else size(use.used_bytes)
        limit = "" if use.limit_bytes is None else f" of {size(use.limit_bytes)}"
        table.add_row(use.name, str(use.sessions), size(use.live_bytes), used + limit)
    return Group(Text(line), table)
