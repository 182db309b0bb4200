"""Finds the device that a user names."""

import contextlib
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
    if name.partition(":")[0] == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def share_memory() -> None:
    """Before the first use of jax: take GPU memory as it is needed, not most of it at once."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


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


def find_devices(names: str) -> list[Device]:
    """Several devices: `cpu`, `gpu` or `tpu` are all of their kind, `cpu:4` makes four, `0,2` are two by their numbers.

    `cpu:4` needs a process in which jax has not started yet.

    Raises:
        NoSuchDevice: one is not there.
    """
    kind, _, number = names.partition(":")
    if number:
        if kind != "cpu" or not number.isdigit() or not int(number):
            raise NoSuchDevice(f"--devices {names}: expected cpu:N with N > 0; other devices are what they are")
        jax.config.update("jax_num_cpu_devices", int(number))
        return list(jax.devices("cpu"))
    if names[:1].isdigit():
        return [find_device(name.strip()) for name in names.split(",")]
    find_device(names)
    return list(jax.devices(names))


def first_devices(name: str | None, number: int) -> list[Device]:
    """The first `number` devices of a kind (`cpu`, `gpu`, `tpu`), by default of jax's own; CPUs are made as needed.

    Raises:
        NoSuchDevice: there are fewer.
    """
    if name == "cpu" or os.environ.get("JAX_PLATFORMS") == "cpu":
        with contextlib.suppress(RuntimeError):  # jax has started: what there is has to do
            jax.config.update("jax_num_cpu_devices", number)
    there = find_devices(name) if name else list(jax.devices())
    if len(there) < number:
        raise NoSuchDevice(
            f"expected {number} devices, got {_listed(there)}; --device cpu has as many as are asked for"
        )
    return there[:number]


def _listed(devices: Sequence[Device]) -> str:
    return ", ".join(f"{n}: {device}" for n, device in enumerate(devices))
