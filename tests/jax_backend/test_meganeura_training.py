"""Training does what Meganeura's does, whoever makes the gradients."""

import re

import numpy as np
import pytest

from ir.errors import StreamError
from ir.meganeura.ops import Parameter
from jax_backend.graph_function import UnknownName
from jax_backend.meganeura import Session
from jax_backend.training import Adam, Sgd
from tests.jax_backend.sessions import (
    SHAPES,
    assert_same,
    by_hand,
    mean_of_product,
    numbers,
    regression,
    trained,
    values,
)
from tests.meganeura_ir.rust_graphs import rust_graph

# ---- training


def test_sgd_takes_the_loss_from_08_to_06() -> None:
    session = Session(mean_of_product(), gradients="jax")
    session.set_parameter("w", [0.1] * 32)
    session.set_input("x", np.ones((4, 8)))
    session.set_learning_rate(0.1)
    session.step()
    assert session.read_loss() == pytest.approx(0.8)
    np.testing.assert_allclose(session.read_param_grad("w"), np.full((8, 4), 0.25))
    session.step()
    assert session.read_loss() == pytest.approx(0.6)


def test_loss_and_gradients_are_those_of_the_formulas() -> None:
    session = trained()
    session.step()
    loss, grads = by_hand(values(session))
    assert session.read_loss() == pytest.approx(loss, rel=1e-5)
    assert_same({name: session.read_param_grad(name) for name in SHAPES}, grads)
    assert session.num_outputs == 2
    assert session.read_output(1).shape == (7, 2)


def adam_by_hand(parameters: dict[str, np.ndarray], steps: int, rates: dict[str, float]) -> dict[str, np.ndarray]:
    p = {name: value.astype(np.float64) for name, value in parameters.items()}
    m = {name: np.zeros_like(value) for name, value in p.items()}
    v = {name: np.zeros_like(value) for name, value in p.items()}
    for t in range(1, steps + 1):
        _, grads = by_hand(p)
        for name, g in grads.items():
            m[name] = 0.8 * m[name] + 0.2 * g
            v[name] = 0.95 * v[name] + 0.05 * g * g
            p[name] -= rates[name] * (m[name] / (1 - 0.8**t)) / (np.sqrt(v[name] / (1 - 0.95**t)) + 1e-3)
    return p


def test_adam_is_that_of_the_formulas_with_a_rate_per_group() -> None:
    session = trained()
    rates = dict.fromkeys(SHAPES, 0.02) | {"fc2.weight": 0.1, "fc2.bias": 0.01}
    wanted = adam_by_hand(values(session), 4, rates)
    session.set_adam(0.02, 0.8, 0.95, 1e-3)
    session.set_lr_multiplier("fc2", 5.0)
    session.set_lr_multiplier("fc2.bias", 0.5)
    for _ in range(4):
        session.step()
    assert_same(values(session), wanted, rtol=1e-4)


def test_cleared_multipliers_no_longer_count() -> None:
    session = trained()
    wanted = adam_by_hand(values(session), 1, dict.fromkeys(SHAPES, 0.02))
    session.set_lr_multiplier("fc", 7.0)
    session.clear_lr_multipliers()
    session.set_adam(0.02, 0.8, 0.95, 1e-3)
    session.step()
    assert_same(values(session), wanted, rtol=1e-4)


def test_stand_alone_updates_use_the_last_gradients_and_no_multiplier() -> None:
    session = trained()
    before = values(session)
    session.set_lr_multiplier("fc1", 100.0)
    session.step()
    assert_same(values(session), before, rtol=0)
    _, grads = by_hand(before)
    session.sgd_step(0.3)
    assert_same(values(session), {name: before[name] - 0.3 * grads[name] for name in SHAPES})
    session = trained()
    session.step()
    session.adam_step(0.02, 0.8, 0.95, 1e-3)
    assert_same(values(session), adam_by_hand(before, 1, dict.fromkeys(SHAPES, 0.02)), rtol=1e-4)


def changes(session: Session, steps: int) -> list[bool]:
    """Whether each of the next steps changes a parameter."""
    found: list[bool] = []
    for _ in range(steps):
        before = session.read_param("fc1.bias")
        session.step()
        found.append(bool((session.read_param("fc1.bias") != before).any()))
    return found


def test_a_learning_rate_stays_until_it_is_taken_back() -> None:
    session = trained()
    session.set_optimizer(Sgd(0.1))
    assert changes(session, 3) == [True, True, True]
    session.set_optimizer(None)
    assert changes(session, 2) == [False, False]


def test_in_meganeura_02_a_learning_rate_serves_one_step_and_sgd_goes_before_adam() -> None:
    session = trained(compat="0.2")
    session.set_learning_rate(0.1)
    session.set_adam(0.1)
    _, grads = by_hand(before := values(session))
    session.step()
    assert_same(values(session), {name: before[name] - 0.1 * grads[name] for name in SHAPES})
    assert changes(session, 2) == [True, False]


def test_the_optimizer_that_was_set_last_counts() -> None:
    session = trained()
    wanted = adam_by_hand(values(session), 1, dict.fromkeys(SHAPES, 0.02))
    session.set_learning_rate(0.1)
    session.set_optimizer(Adam(0.02, 0.8, 0.95, 1e-3))
    session.step()
    assert_same(values(session), wanted, rtol=1e-4)


def test_a_batch_learns_from_the_mean_of_its_losses() -> None:
    xs, targets = numbers(20, 3, 7, 3), numbers(21, 3, 7, 2)
    session = trained(batch=3)
    session.set_input("x", xs)
    session.set_input("target", targets)
    session.step()
    losses: list[float] = []
    grads: list[np.ndarray] = []
    one = trained()
    for x, target in zip(xs, targets, strict=True):
        one.set_input("x", x)
        one.set_input("target", target)
        one.step()
        losses.append(one.read_loss())
        grads.append(one.read_param_grad("fc1.weight"))
    assert session.read_loss() == pytest.approx(np.mean(losses), rel=1e-5)
    np.testing.assert_allclose(session.read_param_grad("fc1.weight"), np.mean(grads, 0), rtol=1e-4, atol=1e-6)
    assert session.read_output(1).shape == (3, 7, 2)


def test_a_parameter_that_the_loss_does_not_need_keeps_its_value() -> None:
    g = mean_of_product()
    g.parameter("spare", [3])
    session = Session(g, gradients="jax")
    session.set_parameter("spare", [1, 2, 3])
    session.set_adam(0.1)
    session.step()
    assert session.read_param("spare").tolist() == [1, 2, 3]
    assert not session.has_param_grad("spare")
    assert session.has_param_grad("w")
    with pytest.raises(UnknownName, match="no gradient for parameter spare: w have one"):
        session.read_param_grad("spare")


def test_training_compiles_one_executable_and_donates_its_parameters() -> None:
    session = trained()
    session.set_adam(0.1)
    session.step()
    spent, old = session.programs.compile_s, session.parameter("fc1.weight")
    session.step()
    session.set_adam(0.05, 0.8)
    session.set_lr_multiplier("fc1", 2.0)
    session.step()
    session.wait()
    assert session.programs.compile_s == spent
    assert old.is_deleted()


# ---- gradients that a graph carries


def test_gradients_in_the_graph_and_those_of_jax_train_alike() -> None:
    sessions = [trained(), trained("graph"), trained("given")]
    for session in sessions:
        session.set_adam(0.05)
        for _ in range(3):
            session.step()
        assert_same(values(session), values(sessions[0]), rtol=1e-4)
        assert session.read_loss() == pytest.approx(sessions[0].read_loss(), rel=1e-5)


def test_a_batch_averages_the_gradients_that_a_graph_carries() -> None:
    found: list[np.ndarray] = []
    for gradients in ("jax", "graph"):
        session = trained(gradients, batch=3)
        session.set_input("x", numbers(20, 3, 7, 3))
        session.set_input("target", numbers(21, 3, 7, 2))
        session.step()
        found.append(session.read_param_grad("fc1.weight"))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6)


def test_a_graph_without_the_gradients_it_is_said_to_have_is_refused() -> None:
    with pytest.raises(StreamError, match="expected a loss and a gradient for each of 4 parameters, got 2"):
        Session(regression(), gradients="given")


def test_a_parameter_without_a_gradient_has_a_placeholder_and_stays() -> None:
    g = mean_of_product()
    g.parameter("spare", [3])
    session = Session(g, gradients="graph")
    session.set_parameter("spare", [1, 2, 3])
    session.set_input("x", np.ones((4, 8)))
    session.set_learning_rate(0.1)
    session.step()
    assert session.read_param("spare").tolist() == [1, 2, 3]
    assert not session.has_param_grad("spare")
    np.testing.assert_allclose(session.read_param("w"), np.full((8, 4), -0.025), rtol=1e-6)


# ---- graphs of the crate


def test_the_crates_own_training_graphs_train_as_jax_does() -> None:
    name = "smollm2-head64-loss"
    forward = rust_graph(name)
    shapes = {op.name: op.out.shape.dims for op in forward.ops() if isinstance(op, Parameter)}
    tokens = [3, 1, 4, 1, 5]
    sessions = {
        "jax": Session(forward, gradients="jax"),
        "differentiated": Session(rust_graph(f"{name}-differentiated"), gradients="given", compat="0.2"),
        "training": Session(rust_graph(f"{name}-training"), gradients="given"),
    }
    found: list[dict[str, np.ndarray]] = []
    for session in sessions.values():
        for n, (parameter, shape) in enumerate(shapes.items()):
            session.set_parameter(parameter, 0.3 * numbers(n, *shape) + (len(shape) == 1))
        session.set_input("token_ids", tokens)
        session.set_input("labels", np.eye(96)[[*tokens[1:], 9]])
        for _ in range(2):
            session.set_learning_rate(0.01)
            session.step()
        found.append(values(session, tuple(shapes)))
    assert_same(found[1], found[0], rtol=1e-4)
    assert_same(found[2], found[0], rtol=1e-4)
    initial = sessions["jax"].read_param("model.layers.0.mlp.up_proj.weight")
    assert (initial != 0.3 * numbers(8, *initial.shape)).any()


def test_gradients_do_not_take_the_buffers_of_the_parameters() -> None:
    session = trained()
    text = session.programs.prepare("adam").as_text() or ""
    header = text.splitlines()[0]
    aliases = {int(out): int(n) for out, n in re.findall(r"\{(\d+)\}: \((\d+), \{\}", header)}
    parameters, moments, before_moments = range(4), range(4, 12), 6
    assert aliases == {n: n for n in parameters} | {n: n - 4 + before_moments for n in moments}
