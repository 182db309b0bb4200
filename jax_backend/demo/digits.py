"""Learns handwritten digits: every operation of a training step, backward pass and Adam included, is recorded.

The images are the 1,797 of scikit-learn, 8x8 pixels each. The classifier has two layers; its gradients are derived by
hand below, so that the step shows what a framework's autodiff sends. The step is compiled once: Adam's bias
corrections are other numbers each time, and numbers are arguments of the program.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ir import I32
from jax_backend.capturing import CapturingRecorder
from jax_backend.demo.extra import require
from jax_backend.recorder import Recorder
from jax_backend.tensor import Tensor, TensorRecorder

NUM_CLASSES: Final = 10
NUM_PIXELS: Final = 64
NUM_HIDDEN: Final = 128
BATCH: Final = 64
LEARNING_RATE: Final = 2e-3
BETA_1: Final = 0.9
BETA_2: Final = 0.999
EPSILON: Final = 1e-8


class Digits(NamedTuple):
    """Images (N, 64) in [0, 1] as f32, and what they show (N,) as i32."""

    images: np.ndarray
    labels: np.ndarray


def load(held_out: float = 0.2, seed: int = 0) -> tuple[Digits, Digits]:
    """The digits to learn from, and the share `held_out` to be tested on.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    found = require("sklearn.datasets").load_digits()
    order = np.random.default_rng(seed).permutation(len(found.target))
    images = (found.data[order] / 16).astype(np.float32)
    labels = found.target[order].astype(np.int32)
    split = round(held_out * len(labels))
    return Digits(images[split:], labels[split:]), Digits(images[:split], labels[:split])


class Forward(NamedTuple):
    """What a forward pass makes: hidden activations (N, H) and log-probabilities (N, C)."""

    hidden: Tensor
    log_probabilities: Tensor


class Classifier:
    """Two linear layers with a relu between them: weights (in, out), biases (1, out)."""

    def __init__(self, recorder: TensorRecorder, seed: int) -> None:
        random = np.random.default_rng(seed)

        def layer(inputs: int, outputs: int) -> list[Tensor]:
            weight = random.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32)
            return [recorder.from_numpy(weight), recorder.from_numpy(np.zeros((1, outputs), np.float32))]

        self.parameters = layer(NUM_PIXELS, NUM_HIDDEN) + layer(NUM_HIDDEN, NUM_CLASSES)

    def forward(self, images: Tensor) -> Forward:
        """Record the forward pass of `images` (N, 64)."""
        weight_1, bias_1, weight_2, bias_2 = self.parameters
        hidden = (images @ weight_1 + bias_1).relu()
        return Forward(hidden, (hidden @ weight_2 + bias_2).log_softmax(1))

    def backward(self, images: Tensor, targets: Tensor, made: Forward) -> list[Tensor]:
        """Record the gradients of the mean cross entropy to `targets` (N, C), one per parameter."""
        weight_2 = self.parameters[2]
        d_logits = (made.log_probabilities.exp() - targets) / len(images)
        d_hidden = made.hidden.relu_backward(d_logits @ weight_2.T)
        return [
            images.T @ d_hidden,
            d_hidden.sum_dim(0),
            made.hidden.T @ d_logits,
            d_logits.sum_dim(0),
        ]


class Adam:
    """The optimizer, in operations. Source: Kingma and Ba, "Adam", algorithm 1."""

    def __init__(self, recorder: TensorRecorder, parameters: list[Tensor]) -> None:
        def zeros() -> list[Tensor]:
            # Uploaded, not recorded as Zeros: they would make the first step another program than the rest.
            return [recorder.from_numpy(np.zeros(p.shape, np.float32)) for p in parameters]

        self._first = zeros()
        self._second = zeros()
        self._steps = 0

    def update(self, parameters: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Record one step and return the new parameters."""
        self._steps += 1
        correction_1 = 1 - BETA_1**self._steps
        correction_2 = 1 - BETA_2**self._steps
        self._first = [m * BETA_1 + g * (1 - BETA_1) for m, g in zip(self._first, gradients, strict=True)]
        self._second = [v * BETA_2 + g * g * (1 - BETA_2) for v, g in zip(self._second, gradients, strict=True)]
        return [
            p - m * (LEARNING_RATE / correction_1) / ((v / correction_2).sqrt() + EPSILON)
            for p, m, v in zip(parameters, self._first, self._second, strict=True)
        ]


class Trainer:
    """A classifier under training; the data stays on the device, a step uploads the places of its batch.

    Over several devices `share` gives each its part of a batch, and `join` takes the mean of what each made of it.
    """

    def __init__(
        self,
        recorder: TensorRecorder,
        learn: Digits,
        test: Digits,
        seed: int,
        *,
        share: Callable[[np.ndarray], Tensor] | None = None,
        join: Callable[[Tensor], Tensor] = lambda part: part,
    ) -> None:
        one_hot = np.eye(NUM_CLASSES, dtype=np.float32)
        self._share = share or recorder.from_numpy
        self._join = join
        self._images = recorder.from_numpy(learn.images)
        self._targets = recorder.from_numpy(one_hot[learn.labels])
        self._test_images = recorder.from_numpy(test.images)
        self._test_labels = test.labels
        self._random = np.random.default_rng(seed)
        self.classifier: Final = Classifier(recorder, seed)
        self._adam = Adam(recorder, self.classifier.parameters)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the data to learn from."""
        return len(self._images) // BATCH

    def batches(self) -> Iterator[np.ndarray]:
        """The places of one epoch's batches (BATCH,), in random order."""
        order = self._random.permutation(len(self._images)).astype(np.int32)
        return iter(order[: self.steps_per_epoch * BATCH].reshape(-1, BATCH))

    def step(self, places: np.ndarray) -> Tensor:
        """Record a step on the images at `places` and return its loss (1, 1), which is computed when it is read."""
        batch = self._share(places)
        images, targets = self._images.select(0, batch), self._targets.select(0, batch)
        made = self.classifier.forward(images)
        gradients = [self._join(g) for g in self.classifier.backward(images, targets, made)]
        self.classifier.parameters = self._adam.update(self.classifier.parameters, gradients)
        return self._join((made.log_probabilities * targets).sum_dim(1).sum_dim(0) / -len(images))

    def test(self) -> tuple[float, np.ndarray]:
        """The mean cross entropy of the held-out images, and the digits that the classifier takes them for."""
        scores = self.classifier.forward(self._test_images).log_probabilities
        guesses = scores.arg_max(1, out_dtype=I32)
        log_probabilities = scores.numpy()
        loss = -log_probabilities[np.arange(len(self._test_labels)), self._test_labels].mean()
        return float(loss), guesses.numpy()[:, 0]


@dataclass(frozen=True)
class Epoch:
    """Where the training stands after an epoch."""

    number: int
    loss: float
    test_loss: float
    accuracy: float
    guesses: np.ndarray


def capture(path: Path, recorder: Recorder, learn: Digits, test: Digits, seed: int, steps: int = 3) -> None:
    """Write a session to `path`: the first steps of a training, the loss of each, and the parameters they end with.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("wb") as file, CapturingRecorder(recorder, file) as capturing:
        trainer = Trainer(capturing, learn, test, seed)
        for places in islice(trainer.batches(), steps):
            trainer.step(places).numpy()
        for parameter in trainer.classifier.parameters:
            parameter.numpy()


def train(trainer: Trainer, test: Digits, epochs: int) -> Iterator[Epoch]:
    """Train and test, epoch by epoch."""
    for number in range(1, epochs + 1):
        losses = [trainer.step(places).item() for places in trainer.batches()]
        test_loss, guesses = trainer.test()
        accuracy = float((guesses == test.labels).mean())
        yield Epoch(number, float(np.mean(losses)), test_loss, accuracy, guesses)
