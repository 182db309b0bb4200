"""Finds the device that a user names."""

import os
from collections.abc import Sequence

import jax

from ir.errors import IrError
from jax_backend.types import Device


class NoSuchDevice(IrError):
    """The machine, or its jax, has no such device."""


MENDS = {
    "gpu": "pip install 'burn-xla[gpu]' brings jax for NVIDIA GPUs",
    "tpu": "pip install 'jax[tpu]' brings jax for TPUs",
}
"""What may bring a platform that is missing."""


def prepare(name: str) -> None:
    """Before the first use of jax: with `cpu`, leave accelerators alone, whose start takes seconds and memory."""
    if name == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def find_device(name: str) -> Device:
    """The device called `cpu`, `gpu` or `tpu` (the first of its kind), or by its number in `jax.devices()`.

    Raises:
        NoSuchDevice: there is none; the message names those there are.
    """
    there = jax.devices()
    if name.isdigit():
        if int(name) < len(there):
            return there[int(name)]
        raise NoSuchDevice(f"--device {name}: expected 0 to {len(there) - 1}; there are {_listed(there)}")
    try:
        return jax.devices(name)[0]
    except RuntimeError as reason:
        hint = f"; {MENDS[name]}" if name in MENDS else "; expected cpu, gpu, tpu or a number"
        raise NoSuchDevice(f"--device {name}: there is none; there are {_listed(there)}{hint}") from reason


def _listed(devices: Sequence[Device]) -> str:
    return ", ".join(f"{n}: {device}" for n, device in enumerate(devices))
