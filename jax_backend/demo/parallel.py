"""The digits on several devices: each takes its part of every batch, and all take the same step."""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ir.errors import ShapeError
from jax_backend.collective import Spmd
from jax_backend.demo.digits import BATCH, Digits, Trainer
from jax_backend.recorder import Recorder
from jax_backend.spmd_recorder import SpmdRecorder
from jax_backend.types import Device

ONE: Final = "one device"
ALL_REDUCE: Final = "all-reduce"
SHARDED: Final = "sharded"


class Run(NamedTuple):
    """A training: `losses` are those of its steps, the speed is that of all epochs but the first, which compiles."""

    how: str
    num_devices: int
    losses: np.ndarray
    accuracy: float
    steps_per_s: float

    def difference(self, other: "Run") -> float:
        """How far the two curves of the loss are apart at most."""
        return float(np.abs(self.losses - other.losses).max())


def trainer_on(devices: Sequence[Device], how: str, learn: Digits, test: Digits, seed: int) -> Trainer:
    """A training on `devices`.

    Raises:
        ShapeError: they cannot share a batch equally.
    """
    if how == ONE:
        return Trainer(Recorder(devices[0], name="digits", seed=seed), learn, test, seed)
    if BATCH % len(devices):
        raise ShapeError(f"--data-parallel: expected a number that divides the batch of {BATCH}, got {len(devices)}")
    recorder = SpmdRecorder(Spmd(devices), is_sharded=how == SHARDED)
    return Trainer(recorder, learn, test, seed, share=recorder.shard, join=recorder.joined)


def run(devices: Sequence[Device], how: str, learn: Digits, test: Digits, seed: int, epochs: int) -> Run:
    """Train for some epochs.

    Raises:
        ShapeError: as `trainer_on`.
    """
    trainer = trainer_on(devices, how, learn, test, seed)
    losses: list[float] = []
    times: list[float] = []
    for _ in range(epochs):
        began = time.perf_counter()
        losses += [float(trainer.step(places).item()) for places in trainer.batches()]
        times.append(time.perf_counter() - began)
    _, guesses = trainer.test()
    steady = times[1:] or times
    return Run(
        how,
        len(devices),
        np.array(losses),
        float((guesses == test.labels).mean()),
        trainer.steps_per_epoch * len(steady) / sum(steady),
    )


def counts_up_to(num_devices: int) -> list[int]:
    """The powers of two from 2 up to `num_devices`, and that itself.

    >>> counts_up_to(8), counts_up_to(6)
    ([2, 4, 8], [2, 4, 6])
    """
    powers = [2**n for n in range(1, num_devices.bit_length()) if 2**n < num_devices]
    return [*powers, num_devices]


def compared(learn: Digits, test: Digits, seed: int, epochs: int, devices: Sequence[Device]) -> list[Run]:
    """The same training on one device, and both ways on growing numbers of them.

    Raises:
        ShapeError: as `trainer_on`.
    """
    runs = [run(devices[:1], ONE, learn, test, seed, epochs)]
    for number in counts_up_to(len(devices)):
        runs += [run(devices[:number], how, learn, test, seed, epochs) for how in (ALL_REDUCE, SHARDED)]
    return runs
