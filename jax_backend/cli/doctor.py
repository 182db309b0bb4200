"""`burn-xla doctor`: what this installation has, what it lacks, and the command that mends it."""

import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from jax_backend.cli.text import size

REQUIRED: Final = (
    "jax",
    "jaxlib",
    "flatbuffers",
    "ml_dtypes",
    "msgspec",
    "numpy",
    "optax",
    "picows",
    "safetensors",
    "click",
    "rich",
)
OPTIONAL: Final = {
    "matplotlib": "plots: pip install 'burn-xla[plots]'",
    "scikit-learn": "the digits of the demo: pip install 'burn-xla[plots]'",
    "tokenizers": "words of the search demo: pip install 'burn-xla[search]'",
}


class Finding(NamedTuple):
    """One line: what, how it is, and what mends it. `is_fatal`: nothing runs until it is mended."""

    what: str
    state: str
    mend: str = ""
    is_fatal: bool = False


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> None:
    """Check versions, devices, precision and the cache; exit 1 where nothing can run."""
    findings = [*packages(), *devices(), precision(), cache(), drawing()]
    if as_json:
        click.echo(msgspec.json.encode([f._asdict() for f in findings]).decode())
    else:
        width = max(len(f.what) for f in findings)
        for finding in findings:
            click.echo(f"{finding.what.ljust(width)}  {finding.state}")
            if finding.mend:
                click.echo(f"{' ' * width}  -> {finding.mend}")
    if any(f.is_fatal for f in findings):
        sys.exit(1)


def packages() -> list[Finding]:
    """Versions of what is needed, and of what adds something."""
    found = [Finding("python", platform.python_version())]
    for name in REQUIRED:
        try:
            found.append(Finding(name, version(name)))
        except PackageNotFoundError:
            found.append(Finding(name, "missing", f"pip install {name}", is_fatal=True))
    for name, mend in OPTIONAL.items():
        try:
            found.append(Finding(name, version(name)))
        except PackageNotFoundError:
            found.append(Finding(name, "not installed (optional)", mend))
    return found


def devices() -> list[Finding]:
    """What jax can run on, and an accelerator that is there but that this jax does not know."""
    from jax_backend.devices import MENDS

    try:
        import jax

        there = jax.devices()
    except Exception as reason:  # whatever a broken driver or plugin raises
        mend = "JAX_PLATFORMS=cpu burn-xla doctor shows whether the CPU works"
        return [Finding("devices", f"jax does not start: {reason}", mend, is_fatal=True)]
    found = [Finding(f"device {n}", f"{d} ({d.device_kind})") for n, d in enumerate(there)]
    kinds = {d.platform for d in there}
    if kinds == {"cpu"} and has_nvidia():
        forced = os.environ.get("JAX_PLATFORMS")
        mend = f"JAX_PLATFORMS is {forced!r}: unset it" if forced else MENDS["gpu"]
        found.append(Finding("gpu", "an NVIDIA GPU is there, but jax does not use it", mend))
    return found


def has_nvidia() -> bool:
    """Whether this machine shows an NVIDIA GPU."""
    return Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") is not None


def precision() -> Finding:
    """How f32 products are computed."""
    state = "f32 products in full f32; `--precision default` takes TF32 on NVIDIA and bf16 on TPU"
    return Finding("precision", state)


def cache() -> Finding:
    """Where compiled programs are kept."""
    from jax_backend import disk_cache

    folder = disk_cache.folder()
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(existing, os.W_OK):
        mend = f"export {disk_cache.ENVIRONMENT}=DIR names a folder that you can write to"
        return Finding("cache", f"{folder}: not writable, every process compiles anew", mend)
    used, limit = size(disk_cache.size_bytes(folder)), size(disk_cache.MAX_BYTES)
    return Finding("cache", f"{folder}: {used} of at most {limit}")


def drawing() -> Finding:
    """What lays out the graphs of `inspect --graph`."""
    if dot := shutil.which("dot"):
        return Finding("graphviz", dot)
    return Finding("graphviz", "not installed (optional): graphs get a simple layout", "apt-get install graphviz")
