"""What must hold for any seed: graphs of one kind and networks, on the crate and on ours.

`test_differential` holds it for some seeds, `scripts/fuzz_against_meganeura.py` for as many as there is time for.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from ir.meganeura import differentiate
from ir.meganeura.ops import RoPE
from ir.meganeura.types import NodeId
from tests.meganeura import deviations, graphs
from tests.meganeura.compare import Case, assert_same, assert_same_by_name, case_of, crate, difference, ours
from tests.meganeura.making import Maker
from tests.meganeura.networks import image_network, sequence_network
from tests.meganeura.operations import ROWS
from tests.meganeura.referee import INFERENCE, TRAINING, Referee, Sgd, State, Step

VARIANTS: Final = 2
"""Cases of a kind in one graph."""
NETWORKS: Final[dict[str, Callable[[Maker], NodeId]]] = {"sequence": sequence_network, "image": image_network}


def results_of(kind: str, seed: int) -> Maker:
    """Some results of one kind."""
    m = Maker([seed, 0, *kind.encode()])
    m.graph.set_outputs([ROWS[kind](m) for _ in range(VARIANTS)])
    return m


def loss_around(kind: str, seed: int) -> Maker:
    """A loss of an operation between others, so that gradients come to it and go on from it."""
    m = Maker([seed, 1, *kind.encode()], middle=True)
    m.graph.set_outputs([m.weighted_mean(ROWS[kind](m))])
    return m


def loss_at_the_end(kind: str, seed: int) -> Maker:
    """An operation that is a loss, as the loss."""
    m = Maker([seed, 2, *kind.encode()], middle=True)
    m.graph.set_outputs([ROWS[kind](m)])
    return m


def network(name: str, seed: int) -> Maker:
    """One of `NETWORKS`."""
    m = Maker([seed, 3, *name.encode()])
    m.graph.set_outputs([NETWORKS[name](m)])
    return m


def check_results(referee: Referee, m: Maker) -> State:
    """`compat="0.2"` gives the results of the crate; returns these."""
    (theirs,) = crate(referee, case_of(m))
    (same,) = ours(case_of(m))
    assert_same(same.outputs, theirs.outputs)
    return theirs


def check_gradients(referee: Referee, m: Maker, kind: str) -> float:
    """The same gradient nodes, the same numbers from them, and jax finds the same where nothing deviates.

    Returns the largest difference between the gradients that are meant and those of the crate.
    """
    case = case_of(m)
    explicit = case._replace(graph=differentiate(m.graph, compat="0.2"))
    assert explicit.graph.to_msgpack() == referee.passes(m.graph.to_msgpack(), ["Differentiate"]), "other nodes"
    (theirs,) = crate(referee, explicit)
    if kind not in deviations.NOT_REPRODUCED:
        assert_same(ours(explicit)[0].outputs, theirs.outputs)
    (meant,) = ours(case, compat=None, gradients="jax")
    # Where nothing flows, the crate has a zero of shape [1].
    given = {name: np.broadcast_to(theirs.gradients[name], g.shape) for name, g in meant.gradients.items()}
    # `dynamic-offset-gradient` is a matter of the graph, not of the kind.
    moving = any(isinstance(op, RoPE) and op.offset is not None for op in m.graph.ops())
    if kind not in deviations.GRADIENT and not moving:
        assert_same_by_name(meant.gradients, given)
    return max(difference(g, given[name]) for name, g in meant.gradients.items())


def check_network(referee: Referee, m: Maker) -> None:
    """Losses, gradients and parameters of two SGD steps, and the loss alone; the crate optimizes its graphs first."""
    case = Case(m.graph, m.parameters, [Step(m.inputs, Sgd(0.05)), Step({}, Sgd(0.02))])
    theirs = crate(referee, case, passes=TRAINING)
    meant = ours(case, compat="0.2", gradients="jax")
    joined = graphs.joined_parameters(referee, m.graph)
    for mine, their in zip(meant, theirs, strict=True):
        assert_same(mine.outputs, their.outputs[:1])
        assert_same_by_name(graphs.join(mine.gradients, joined), their.gradients, 2e-5)
        assert_same_by_name(graphs.join(mine.parameters, joined), their.parameters, 2e-5)
    # Without the last pass the crate runs some graphs in a wrong order: see `dispatch-order`.
    (inferred,) = crate(referee, case_of(m), passes=[*INFERENCE, "Toposort"])
    assert_same(meant[0].outputs, inferred.outputs)
