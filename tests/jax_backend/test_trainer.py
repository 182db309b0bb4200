"""Batches come in Meganeura's order, and a trainer does with them what a loop by hand does."""

import logging

import numpy as np
import pytest

from ir.errors import ShapeError
from ir.meganeura import Graph
from jax_backend.meganeura import Session
from jax_backend.trainer import DataLoader, TrainConfig, Trainer, TrainHistory
from jax_backend.training import Sgd


def loader_of(count: int, batch: int) -> DataLoader:
    """Samples of 3 numbers, labelled by their places."""
    return DataLoader(np.arange(3 * count), np.arange(count), sample_size=3, label_size=1, batch_size=batch)


def order(loader: DataLoader) -> list[int]:
    loader.reset()
    return [int(label) for batch in loader for label in batch.labels[:, 0]]


def test_batches_come_in_order_and_end() -> None:
    loader = loader_of(8, 4)
    assert (len(loader), loader.num_batches) == (8, 2)
    first, second = loader.next_batch(), loader.next_batch()
    assert first is not None
    assert second is not None
    assert first.data.shape == (4, 3)
    assert second.data[0, 0] == 12.0
    assert loader.next_batch() is None
    loader.reset()
    assert len(list(loader)) == 2


def test_samples_that_fill_no_batch_are_left_out() -> None:
    assert order(loader_of(8, 3)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("seed", "wanted"), [(0, [7, 4, 3, 2, 5, 0, 1, 6]), (42, [7, 1, 0, 3, 6, 4, 2, 5])])
def test_the_order_is_that_of_meganeura(seed: int, wanted: list[int]) -> None:
    loader = loader_of(8, 1)
    loader.shuffle(seed)
    assert order(loader) == wanted
    loader.shuffle(seed)
    assert order(loader) == [wanted[n] for n in wanted]


def test_sizes_that_do_not_fit_are_refused() -> None:
    for data, labels, batch, message in (
        (7, 2, 1, r"DataLoader\.data: expected a multiple of sample_size \(3\), got 7"),
        (6, 3, 1, r"DataLoader\.labels: expected 2 numbers for 2 samples, got 3"),
        (6, 2, 3, "expected at least one batch of 3 samples, got 2"),
        (6, 2, 0, "expected sizes of at least 1"),
    ):
        with pytest.raises(ShapeError, match=message):
            DataLoader(np.zeros(data), np.zeros(labels), sample_size=3, label_size=1, batch_size=batch)


def session() -> Session:
    """Mean squared error of 3 weights on 2 rows."""
    g = Graph()
    g.set_outputs([g.mse_loss(g.matmul(g.input("rows", [2, 3]), g.parameter("w", [3, 1])), g.input("y", [2, 1]))])
    return Session(g, gradients="jax")


def test_a_trainer_does_what_a_loop_by_hand_does(caplog: pytest.LogCaptureFixture) -> None:
    x = np.random.default_rng(0).normal(size=(6, 3))
    y = x @ [[1.0], [-2.0], [0.5]]
    loader = DataLoader(x, y, sample_size=3, label_size=1, batch_size=2)
    trainer = Trainer(session(), TrainConfig(Sgd(0.1), log_interval=3, data_input="rows", label_input="y"))
    with caplog.at_level(logging.INFO, "burn_xla.trainer"):
        history = trainer.train(loader, 2)
    w, places = np.zeros((3, 1)), np.arange(6)
    means: list[float] = []
    for epoch in range(2):
        other = loader_of(6, 1)
        other.shuffle(epoch)
        places = places[order(other)]
        losses: list[float] = []
        for rows in places.reshape(3, 2):
            off = x[rows] @ w - y[rows]
            losses.append(float((off**2).mean()))
            w = w - 0.1 * x[rows].T @ off
        means.append(float(np.mean(losses)))
    np.testing.assert_allclose([e.avg_loss for e in history.epochs], means, rtol=1e-4)
    np.testing.assert_allclose(trainer.session.read_param("w"), w, rtol=1e-4, atol=1e-6)
    assert [(e.epoch, e.steps) for e in history.epochs] == [(0, 3), (1, 3)]
    assert history.final_loss() == history.epochs[-1].avg_loss
    assert [r.getMessage()[:22] for r in caplog.records] == ["epoch 0, step 3 of 3: ", "epoch 1, step 3 of 3: "]


def test_no_pass_has_no_loss() -> None:
    assert TrainHistory(()).final_loss() is None
    assert Trainer(session()).train(loader_of(4, 2), 0) == TrainHistory(())
