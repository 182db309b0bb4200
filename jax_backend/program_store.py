"""Compiled programs on disk, by content, so that a second process neither traces nor compiles them.

jax's own disk cache saves the compilation, but its key is the lowered program: tracing and lowering still cost 0.2 ms
per operation. This store's key is the relative graph itself, with everything else that decides the code: versions,
device, XLA flags, processor, precision, and the sources of both packages. A file is jax's serialized executable,
which runs code when it is loaded: the folder is for its owner alone.
"""

import hashlib
import logging
import os
import pickle
import platform
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import jax
import msgspec
from jax.experimental import serialize_executable

import ir
from ir.ops.control import Custom
from ir.stream import RelativeGraph
from jax_backend.types import Device

SUFFIX: Final = ".program"
_log: Final = logging.getLogger("burn_xla.store")
_thread: Final = threading.local()


def jax_cache_hits() -> int:
    """How many programs jax's own disk cache has given this thread.

    XLA on CPU does not serialize what it deserialized: such a file loads, and its functions are not found at a call.
    """
    return getattr(_thread, "hits", 0)


def _note(event: str, **_: object) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _thread.hits = jax_cache_hits() + 1


jax.monitoring.register_event_listener(_note)


def loaded_or_made(
    store: "ProgramStore | None", key: str | None, device: Device, make: Callable[[], jax.stages.Compiled]
) -> tuple[jax.stages.Compiled, bool]:
    """The program of `key`, and whether it was on disk; else what `make` compiles, kept there for later.

    Args:
        store: where; None keeps nothing.
        key: its name; None for a program whose code has none.
        device: where it runs.
        make: compiles it.
    """
    if store is None or key is None:
        return make(), False
    if (found := store.load(key, device)) is not None:
        return found, True
    hits = jax_cache_hits()
    made = make()
    if jax_cache_hits() == hits:
        store.save(key, made)
    return made, False


class ProgramStore:
    """Programs in one folder, which exists and belongs to its user."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    def load(self, key: str, device: Device) -> jax.stages.Compiled | None:
        """The program of `key`, ready to run on `device`; None if it is not there or does not load here."""
        try:
            content = (self.folder / f"{key}{SUFFIX}").read_bytes()
        except FileNotFoundError:
            return None
        try:
            payload, inputs, outputs = pickle.loads(content)
            with jax.enable_x64(True):
                return serialize_executable.deserialize_and_load(payload, inputs, outputs, execution_devices=[device])
        except Exception:  # a truncated file, or one of a runtime that reads another format: compile again
            _log.warning("a stored program does not load; it is compiled again", exc_info=True)
            return None

    def save(self, key: str, compiled: jax.stages.Compiled) -> None:
        """Keep a program; a full or read-only disk costs a warning, not the session."""
        try:
            content = pickle.dumps(serialize_executable.serialize(compiled))
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(content)
            os.replace(file.name, self.folder / f"{key}{SUFFIX}")
        except Exception:  # some backends cannot serialize
            _log.warning("a program could not be stored", exc_info=True)


def program_key(
    graph: RelativeGraph,
    starts: tuple[int, ...],
    traced: tuple[bool, ...],
    donated: Sequence[int],
    device: Device,
    precision: jax.lax.Precision,
) -> str | None:
    """Name of a program by all that decides its code; None where a custom operation does: its code is unknown."""
    if any(isinstance(op, Custom) for op in graph.ops):
        return None
    fixed = [None if t else s for t, s in zip(traced, starts, strict=True)]
    content: list[Any] = [
        [(type(op).__module__, op.kind, op) for op in graph.ops],  # Burn and Meganeura share names
        [graph.inputs, graph.outputs, fixed, list(donated)],
        [device.platform, device.device_kind, device.id, str(precision)],
    ]
    digest = hashlib.blake2b(environment(), digest_size=20)
    digest.update(msgspec.msgpack.encode(content))
    return digest.hexdigest()


@cache
def environment() -> bytes:
    """Digest of what the process runs on: versions, flags, processor, and the sources of both packages."""
    digest = hashlib.blake2b(digest_size=20)
    flags = [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    for part in (jax.__version__, version("jaxlib"), platform.machine(), _processor(), *flags):
        digest.update(f"{part}\0".encode())
    for package in (Path(ir.__file__).parent, Path(__file__).parent):
        for source in sorted(package.rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.digest()


def _processor() -> str:
    """The processor's features: a program compiled for one that has more would not run."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
