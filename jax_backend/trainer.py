"""Training over batches of a data set: Meganeura's `DataLoader` and `Trainer`.

    loader = DataLoader(images, labels, sample_size=784, label_size=10, batch_size=32)
    history = Trainer(session, TrainConfig(optimizer=Adam(1e-3))).train(loader, epochs=5)
    history.final_loss()

Source: meganeura 0.2 `data.rs`, `trainer.rs`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from ir.errors import ShapeError
from jax_backend.meganeura import Session
from jax_backend.training import Optimizer, Sgd

_log: Final = logging.getLogger("burn_xla.trainer")
_MULTIPLIER: Final = 6364136223846793005
_INCREMENT: Final = 1442695040888963407
_MASK: Final = (1 << 64) - 1


class Batch(NamedTuple):
    """Samples (batch, sample size) and their labels (batch, label size)."""

    data: np.ndarray
    labels: np.ndarray


class DataLoader:
    """Batches of one size; samples that do not fill the last one are left out.

    Args:
        data: all samples, flat or (samples, ...).
        labels: all labels, likewise.
        sample_size: numbers of one sample.
        label_size: numbers of one label.
        batch_size: samples of a batch.

    Raises:
        ShapeError: a size does not divide what it should, or there is less than one batch.
    """

    def __init__(self, data: Any, labels: Any, *, sample_size: int, label_size: int, batch_size: int) -> None:
        samples, marks = np.asarray(data, np.float32), np.asarray(labels, np.float32)
        if min(sample_size, label_size, batch_size) < 1:
            raise ShapeError(
                f"DataLoader: expected sizes of at least 1, got samples of {sample_size}, labels of {label_size} and "
                f"batches of {batch_size}"
            )
        if samples.size % sample_size:
            raise ShapeError(
                f"DataLoader.data: expected a multiple of sample_size ({sample_size}), got {samples.size} numbers"
            )
        count = samples.size // sample_size
        if marks.size != count * label_size:
            raise ShapeError(
                f"DataLoader.labels: expected {count * label_size} numbers for {count} samples, got {marks.size}"
            )
        if count < batch_size:
            raise ShapeError(f"DataLoader: expected at least one batch of {batch_size} samples, got {count}")
        self._data = samples.reshape(count, sample_size)
        self._labels = marks.reshape(count, label_size)
        self._batch_size = batch_size
        self._order = list(range(count))
        self._next = 0

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._order)

    @property
    def num_batches(self) -> int:
        """Of one pass."""
        return len(self) // self._batch_size

    def next_batch(self) -> Batch | None:
        """The next one; None at the end of a pass."""
        chosen = self._order[self._next : self._next + self._batch_size]
        if len(chosen) < self._batch_size:
            return None
        self._next += self._batch_size
        return Batch(self._data[chosen], self._labels[chosen])

    def __iter__(self) -> Iterator[Batch]:
        """The batches that are left in this pass."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def reset(self) -> None:
        """Begin a pass; the order stays."""
        self._next = 0

    def shuffle(self, seed: int) -> None:
        """Change the order there is, as Meganeura does: Fisher and Yates on a linear congruential generator."""
        state = (seed + 1) & _MASK
        for last in range(len(self) - 1, 0, -1):
            state = (state * _MULTIPLIER + _INCREMENT) & _MASK
            other = (state >> 33) % (last + 1)
            self._order[last], self._order[other] = self._order[other], self._order[last]


@dataclass(frozen=True)
class TrainConfig:
    """How a `Trainer` trains."""

    optimizer: Optimizer = field(default_factory=Sgd)
    log_interval: int = 100
    """Steps between two lines in the log `burn_xla.trainer`; 0: none."""
    data_input: str = "x"
    label_input: str = "labels"


class EpochStats(NamedTuple):
    """A pass over the data."""

    epoch: int
    avg_loss: float
    """Mean over its steps, each before its update; 0 where there was no step."""
    steps: int


class TrainHistory(NamedTuple):
    """The passes in order."""

    epochs: tuple[EpochStats, ...]

    def final_loss(self) -> float | None:
        """The mean loss of the last pass."""
        return self.epochs[-1].avg_loss if self.epochs else None


class Trainer:
    """Runs a session over the batches of a loader.

    Args:
        session: one with gradients.
        config: optimizer and names of inputs.
    """

    def __init__(self, session: Session, config: TrainConfig | None = None) -> None:
        self.session: Final = session
        self.config: Final = config or TrainConfig()

    def train(self, loader: DataLoader, epochs: int) -> TrainHistory:
        """Several passes, numbered from 0.

        Raises:
            UnknownName, ShapeError: the session has no such inputs, or a batch does not fit them.
        """
        return TrainHistory(tuple(self.train_epoch(loader, epoch) for epoch in range(epochs)))

    def train_epoch(self, loader: DataLoader, epoch: int) -> EpochStats:
        """One pass over the data, shuffled by its number.

        Raises:
            UnknownName, ShapeError: as `train`.
        """
        loader.shuffle(epoch)
        loader.reset()
        total, steps = 0.0, 0
        for batch in loader:
            self.session.set_input(self.config.data_input, batch.data)
            self.session.set_input(self.config.label_input, batch.labels)
            self.session.set_optimizer(self.config.optimizer)
            self.session.step()
            loss = self.session.read_loss()
            total, steps = total + loss, steps + 1
            if self.config.log_interval and steps % self.config.log_interval == 0:
                _log.info("epoch %d, step %d of %d: loss %.4f", epoch, steps, loader.num_batches, loss)
        return EpochStats(epoch, total / steps if steps else 0.0, steps)
