"""The referee's program, on the published meganeura crate with the barriers that its kernels lack.

In 0.2.0 the attention kernels and `rms_norm_grad_x` write shared memory again while others of the workgroup may still
read it. Where a subgroup is as wide as the workgroup nobody notices. lavapipe's is 4 to 16 wide, of 64 or 256, and what
the others read is wrong, every time. So these kernels get a barrier before such a write; nothing else is changed.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Final

from tests.burn.cache import cache_dir
from tests.burn.oracle import OracleError, build, cargo

REFEREE: Final = Path(__file__).parent / "referee"
CRATE: Final = "meganeura"

BARRIER: Final = "workgroupBarrier();\n"
KERNELS: Final = {
    "attention.wgsl": 2,
    "cached_attention.wgsl": 2,
    "mha_forward.wgsl": 1,
    "mha_grad_k.wgsl": 3,
    "mha_grad_q.wgsl": 3,
    "mha_grad_v.wgsl": 1,
    "rms_norm_grad.wgsl": 1,
    "sliding_window_attention.wgsl": 1,
}
"""Kernels that lack barriers, and how many."""

_WRITE: Final = re.compile(r"^ *(?:wg_dot\[tid\] = |wg_data\[tid\] = dot;)", re.MULTILINE)
_TILE: Final = re.compile(r"^ *for \(; t < tile_end; t \+= BKV\) \{\n", re.MULTILINE)


def referee(*, barriers: bool = True) -> Path:
    """Build the program in `referee/` and return its executable.

    Args:
        barriers: False: the crate exactly as published.

    Raises:
        OracleError: cargo is missing or fails, or the kernels are not those of 0.2.0.
    """
    return build(REFEREE, patches={CRATE: _with_barriers()} if barriers else {})


def _with_barriers() -> Path:
    """A copy of the published crate, its kernels changed; made once."""
    folder = cache_dir() / "cargo" / "meganeura-barriers"
    mark, wanted = folder / ".made", repr((BARRIER, KERNELS, _WRITE, _TILE))
    if mark.exists() and mark.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_published(), folder)
    for name, count in KERNELS.items():
        path = folder / "src" / "shaders" / name
        text, writes = _WRITE.subn(BARRIER + r"\g<0>", path.read_text())
        text, tiles = _TILE.subn(r"\g<0>" + BARRIER, text)
        if writes + tiles != count:
            raise OracleError(f"{name}: expected {count} places that need a barrier, got {writes + tiles}")
        path.write_text(text)
    mark.write_text(wanted)
    return folder


def _published() -> Path:
    """Where cargo keeps the source of the crate."""
    command = ["cargo", "metadata", "--format-version=1", "--manifest-path", str(REFEREE / "Cargo.toml")]
    (package,) = (p for p in json.loads(cargo(command))["packages"] if p["name"] == CRATE)
    return Path(package["manifest_path"]).parent
