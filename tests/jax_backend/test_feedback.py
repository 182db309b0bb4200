"""Sessions that feed themselves: what an input holds next follows from the run, in the same program."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ir.errors import DTypeError, ShapeError
from ir.meganeura import Graph
from jax_backend.graph_function import UnknownName
from jax_backend.meganeura import Session
from jax_backend.program_store import ProgramStore


def doubling() -> Graph:
    """2 x, with x (3)."""
    g = Graph()
    x = g.input("x", [3])
    g.set_outputs([g.add(x, x)])
    return g


def first_output(outputs: Sequence[jax.Array], inputs: Mapping[str, jax.Array]) -> jax.Array:
    return outputs[0]


def test_a_run_leaves_the_next_input() -> None:
    session = Session(doubling(), feedback={"x": first_output})
    session.set_input("x", [1.0, 2.0, 3.0])
    for _ in range(4):
        session.step()
    np.testing.assert_array_equal(session.read_output(), [16.0, 32.0, 48.0])
    np.testing.assert_array_equal(session.input("x"), [16.0, 32.0, 48.0])
    session.set_input("x", np.ones(3))
    session.step()
    np.testing.assert_array_equal(session.read_output(), [2.0, 2.0, 2.0])
    assert session.num_outputs == 1
    with pytest.raises(UnknownName, match="output 1: expected 0 to 0; there are 1 outputs"):
        session.output(1)


def test_feedback_sees_inputs_by_name_and_each_set_of_a_batch() -> None:
    feedback = {"x": lambda outputs, inputs: outputs[0] - inputs["x"] + 1}
    session = Session(doubling(), batch=2, feedback=feedback)
    session.set_input("x", [[1, 2, 3], [10, 20, 30]])
    session.step()
    np.testing.assert_array_equal(session.input("x"), [[2, 3, 4], [11, 21, 31]])


def test_a_session_that_learns_feeds_itself() -> None:
    g = Graph()
    x, w = g.input("x", [1, 2]), g.parameter("w", [2, 1])
    g.set_outputs([g.mean_all(g.matmul(x, w))])
    session = Session(g, gradients="jax", feedback={"x": lambda outputs, inputs: inputs["x"] * 2})
    session.set_parameter("w", [1.0, 1.0])
    session.set_input("x", [1.0, 2.0])
    session.set_learning_rate(1.0)
    session.step()
    session.step()
    # By hand: the gradient of w is x, so w is (0, -1) after the first step and (-2, -5) after the second.
    np.testing.assert_array_equal(session.read_param("w"), [[-2.0], [-5.0]])
    assert session.read_loss() == -4.0
    np.testing.assert_array_equal(session.input("x"), [[4.0, 8.0]])


@pytest.mark.parametrize(
    ("name", "function", "error", "words"),
    [
        ("y", first_output, UnknownName, "feedback: expected some of the inputs x, got y"),
        ("x", lambda outputs, inputs: outputs[0][:2], ShapeError, r"feedback of x: expected \[3\], got \[2\]"),
        ("x", lambda outputs, inputs: outputs[0].astype(int), DTypeError, "feedback of x: expected float32, got int"),
    ],
)
def test_feedback_that_does_not_fit_is_refused(name: str, function: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        Session(doubling(), feedback={name: function})


def test_another_feedback_is_another_program_on_disk(tmp_path: Path) -> None:
    def scaled(factor: float) -> Callable[..., jax.Array]:
        return lambda outputs, inputs: outputs[0] * factor

    def stepped(function: Callable[..., jax.Array]) -> tuple[int, np.ndarray]:
        session = Session(doubling(), feedback={"x": function}, store=ProgramStore(tmp_path))
        session.set_input("x", [1.0, 2.0, 3.0])
        session.step()
        return session.programs.num_loaded, np.asarray(session.input("x"))

    for factor, loaded in ((1.0, 0), (3.0, 0), (3.0, 1)):
        num_loaded, x = stepped(scaled(factor))
        assert num_loaded == loaded
        np.testing.assert_array_equal(x, np.array([2.0, 4.0, 6.0]) * factor)
    # An array that a function holds is not in its code: nothing of such a session is found again.
    for value in (1.0, 5.0):
        held = jnp.full(3, value)
        num_loaded, x = stepped(lambda outputs, inputs, held=held: outputs[0] + held)
        assert num_loaded == 0
        np.testing.assert_array_equal(x, np.array([2.0, 4.0, 6.0]) + value)
