"""Keeps compiled programs on disk, so that no process compiles what another one did.

The folder is `BURN_XLA_CACHE`, or `burn-xla` below `XDG_CACHE_HOME` (`~/.cache`). It is for its owner alone: whoever
can write there can make a later process run their code.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jax_backend.program_store import ProgramStore

ENVIRONMENT: Final = "BURN_XLA_CACHE"
MAX_BYTES: Final = 4 << 30


def folder() -> Path:
    """Where the programs are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(ENVIRONMENT) or Path(base) / "burn-xla")


def enable(max_bytes: int = MAX_BYTES) -> "ProgramStore":
    """Let jax keep every program it compiles in `folder()`; returns the store for ours, to hand to a `ProgramCache`.

    Sets jax's switches for the whole process.

    Args:
        max_bytes: bytes that earlier processes may have left there; beyond it the oldest files go.

    Raises:
        OSError: the folder cannot be made.
    """
    import jax

    from jax_backend.program_store import ProgramStore

    path = folder()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # jax's own limit needs a lock file per access, and one stray file stops its writes (jax #39880).
    prune(path, max_bytes)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return ProgramStore(path)


def size_bytes(path: Path) -> int:
    """Bytes of the files in a folder; 0 where there is none."""
    return sum(size for _, size, _ in _files(path))


def prune(path: Path, max_bytes: int) -> None:
    """Delete the oldest files until the rest has at most `max_bytes`."""
    files = sorted(_files(path))
    total = sum(size for _, size, _ in files)
    for _, size, file in files:
        if total <= max_bytes:
            return
        file.unlink(missing_ok=True)
        total -= size


def _files(path: Path) -> list[tuple[float, int, Path]]:
    found: list[tuple[float, int, Path]] = []
    for file in path.iterdir() if path.is_dir() else ():
        try:
            status = file.stat()
        except FileNotFoundError:  # another process was faster
            continue
        found.append((status.st_mtime, status.st_size, file))
    return found
