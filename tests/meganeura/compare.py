"""A graph in a session of ours and in one of the crate, and whether both hold the same."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ir.meganeura import Compat, Graph
from jax_backend.meganeura import Session
from tests.meganeura.making import Maker
from tests.meganeura.referee import Adam, Pass, Referee, Sgd, State, Step, Values

Array: TypeAlias = np.ndarray
Gradients: TypeAlias = Literal["jax", "graph", "given"] | None

TOLERANCE: Final = 1e-5
"""Of the largest element of a result: both sides compute in f32 and add in other orders. Mostly it is below 5e-7."""
SMALL: Final = 1e-2
"""Where the largest element is smaller, distances are parts of this: a mean of terms of about 1 may be nearly 0."""


class Case(NamedTuple):
    """A graph, its parameters and the steps to take."""

    graph: Graph
    parameters: Values
    steps: Sequence[Step]


def case_of(maker: Maker) -> Case:
    """One step of what `maker` made."""
    return Case(maker.graph, maker.parameters, [Step(maker.inputs)])


def crate(referee: Referee, case: Case, *, passes: Sequence[Pass] = ()) -> list[State]:
    """What a session of the crate holds after each step."""
    return referee.run(case.graph.to_msgpack(), case.parameters, case.steps, passes=passes)


def ours(case: Case, *, compat: Compat = "0.2", gradients: Gradients = None) -> list[State]:
    """What a session of ours holds after each step, flat as the crate's."""
    session = Session(case.graph, gradients=gradients, compat=compat)
    for name, value in case.parameters.items():
        session.set_parameter(name, value)
    return [_taken(session, step) for step in case.steps]


def _taken(session: Session, step: Step) -> State:
    for name, value in step.inputs.items():
        session.set_input(name, value)
    match step.optimizer:
        case Sgd(rate):
            session.set_learning_rate(rate)
        case Adam(rate, beta1, beta2, eps):
            session.set_adam(rate, beta1, beta2, eps)
        case None:
            pass
    session.step()
    return State(
        tuple(session.read_output(n).ravel() for n in range(session.num_outputs)),
        {name: session.read_param(name).ravel() for name in session.parameters},
        {name: session.read_param_grad(name).ravel() for name in session.parameters if session.has_param_grad(name)},
    )


def difference(got: Array, want: Array) -> float:
    """The largest distance of two elements, as a part of the largest element; infinite where only one is finite."""
    assert got.shape == want.shape, f"expected {want.shape}, got {got.shape}"
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return float("inf")
    got, want = (np.nan_to_num(side.astype(np.float64)) for side in (got, want))
    return float(np.abs(got - want).max(initial=0.0) / np.abs(want).max(initial=SMALL))


def assert_same(got: Sequence[Array], want: Sequence[Array], tolerance: float = TOLERANCE) -> None:
    """Every result differs by at most `tolerance` of its largest element."""
    found = [difference(a, b) for a, b in zip(got, want, strict=True)]
    assert found
    assert max(found) <= tolerance, f"differences {found}"


def assert_same_by_name(got: Values, want: Values, tolerance: float = TOLERANCE) -> None:
    """`assert_same` of everything that `got` names."""
    found = {name: difference(value, want[name]) for name, value in got.items()}
    assert found
    assert max(found.values()) <= tolerance, f"differences {found}"
