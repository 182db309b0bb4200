"""What a server counts, and how it tells: a snapshot for people and for Prometheus."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from jax_backend.cache import CacheStats
from jax_backend.types import Device


@dataclass
class Counts:
    """What sessions have done so far; bytes are those of WebSocket messages."""

    sessions: int = 0
    refused: int = 0
    frames: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    operations: int = 0
    programs: int = 0
    reads: int = 0
    failures: int = 0
    session_cpu_seconds: float = 0.0
    program_cpu_seconds: float = 0.0

    def add(self, other: "Counts") -> None:
        """Add what another one counted."""
        for name in _COUNT_NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_COUNT_NAMES: Final = tuple(f.name for f in fields(Counts))


@dataclass
class DeviceUse:
    """One device: sessions on it, bytes of their live tensors, and what the device itself says it has in use."""

    name: str
    sessions: int = 0
    live_bytes: int = 0
    used_bytes: int | None = None
    limit_bytes: int | None = None


@dataclass
class Snapshot:
    """A server at one moment."""

    counts: Counts
    cache: CacheStats
    open_sessions: int = 0
    live_tensors: int = 0
    exposed_tensors: int = 0
    loop_cpu_s: float = 0.0
    devices: Sequence[DeviceUse] = field(default_factory=tuple)

    @property
    def live_bytes(self) -> int:
        """Bytes of live tensors on all devices."""
        return sum(device.live_bytes for device in self.devices)

    @property
    def hit_rate(self) -> float:
        """Share of the program calls that compiled nothing; 1 before the first."""
        calls = self.cache.hits + self.cache.compiles
        return self.cache.hits / calls if calls else 1.0


def device_use(device: Device) -> DeviceUse:
    """What `device` says about its memory; a CPU says nothing."""
    stats = device.memory_stats() or {}
    return DeviceUse(str(device), used_bytes=stats.get("bytes_in_use"), limit_bytes=stats.get("bytes_limit"))


_COUNTERS: Final = {
    "sessions": "Sessions that were opened.",
    "refused": "Connections that were refused.",
    "frames": "Messages received.",
    "received_bytes": "Bytes of messages received.",
    "sent_bytes": "Bytes of messages sent.",
    "operations": "Operations recorded.",
    "programs": "Executions of compiled programs.",
    "reads": "Tensors read.",
    "failures": "Operations and transfers that failed.",
    "session_cpu_seconds": "Processor time of the threads of sessions.",
    "program_cpu_seconds": "Of it, inside calls of compiled programs.",
}


def prometheus(snapshot: Snapshot) -> str:
    """The snapshot in Prometheus' text format."""
    lines: list[str] = []

    def metric(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# HELP burn_xla_{name} {text}")
        lines.append(f"# TYPE burn_xla_{name} {kind}")
        lines.extend(f"burn_xla_{name}{labels} {value:.12g}" for labels, value in samples)

    for name, text in _COUNTERS.items():
        metric(f"{name}_total", "counter", text, [("", getattr(snapshot.counts, name))])
    cache = snapshot.cache
    metric("loop_cpu_seconds_total", "counter", "Processor time of the event loop.", [("", snapshot.loop_cpu_s)])
    metric("compiles_total", "counter", "Programs compiled.", [("", cache.compiles)])
    metric("compile_seconds_total", "counter", "Seconds spent compiling.", [("", cache.compile_s)])
    metric("cache_hits_total", "counter", "Calls of programs that were compiled before.", [("", cache.hits)])
    metric("open_sessions", "gauge", "Sessions that are open.", [("", snapshot.open_sessions)])
    metric("live_tensors", "gauge", "Tensor ids that are alive.", [("", snapshot.live_tensors)])
    metric("exposed_tensors", "gauge", "Tensors that wait to be taken.", [("", snapshot.exposed_tensors)])
    by_device = {f'{{device="{use.name}"}}': use for use in snapshot.devices}
    metric("live_bytes", "gauge", "Bytes of live tensors.", [(n, use.live_bytes) for n, use in by_device.items()])
    used = [(n, use.used_bytes) for n, use in by_device.items() if use.used_bytes is not None]
    if used:
        metric("device_used_bytes", "gauge", "Bytes that the device has in use.", used)
    return "\n".join(lines) + "\n"
