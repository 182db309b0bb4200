"""Every kind, random networks and the crate's own models, on the crate and on ours: the same results and gradients.

Both sides of what deviates are held to: a kind in `deviations` must deviate, and `compat="0.2"` must do the same.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from ir.meganeura import Graph, differentiate, program
from ir.meganeura.ops import kinds
from tests.meganeura import checks, deviations, graphs
from tests.meganeura.compare import Case, assert_same, assert_same_by_name, case_of, crate, difference, ours
from tests.meganeura.making import Maker
from tests.meganeura.operations import ROWS
from tests.meganeura.referee import TRAINING, Adam, Referee, RefereeError, Sgd, Step
from tests.meganeura_ir.rust_graphs import rust_graph

SEED: Final = 1
DEVIATES: Final = 1e-3
"""What deviates differs by more than this from what is meant."""


def test_every_kind_has_a_row() -> None:
    assert ROWS.keys() == kinds().keys()


@pytest.mark.parametrize("kind", ROWS)
def test_results(referee: Referee, kind: str) -> None:
    m = checks.results_of(kind, SEED)
    assert kind in {op.kind for op in m.graph.ops()}
    theirs = checks.check_results(referee, m)
    if kind in deviations.FORWARD:
        (meant,) = ours(case_of(m), compat=None)
        assert max(map(difference, meant.outputs, theirs.outputs)) > DEVIATES
    else:
        assert program(m.graph) == program(m.graph, compat="0.2")


LARGE: Final = (10, 20, 80, 90, 1e3, 1e10, 3e38, np.inf)
SPECIAL: Final = np.float32([0, -0.0, 1, -1, 0.5, 2, -2, 1e-30, np.nan, *LARGE, *(-x for x in LARGE)])
"""Without denormals, which XLA's CPU programs take for 0."""


def is_same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Within 2e-6 of the wanted number, or 1e-7; infinities and NaN themselves."""
    with np.errstate(invalid="ignore"):
        return (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= 2e-6 * np.abs(want) + 1e-7)


@pytest.mark.parametrize("kinds", [("sigmoid", "tanh", "neg", "abs", "log", "recip", "silu", "gelu"), ("relu",)])
def test_special_values(referee: Referee, kinds: Sequence[str]) -> None:
    """`relu-of-nan` is apart."""
    values = SPECIAL[~np.isnan(SPECIAL)] if kinds == ("relu",) else SPECIAL
    g = Graph()
    x = g.parameter("x", values.shape)
    g.set_outputs([getattr(g, kind)(x) for kind in kinds])
    case = Case(g, {"x": values}, [Step({})])
    (theirs,), (mine,) = crate(referee, case), ours(case)
    for kind, got, want in zip(kinds, mine.outputs, theirs.outputs, strict=True):
        same = is_same(got, want)
        assert same.all(), f"{kind} of {values[~same]}: {got[~same]}, Meganeura's {want[~same]}"


@pytest.mark.parametrize("kind", ["add", "mul", "greater"])
def test_special_pairs(referee: Referee, kind: str) -> None:
    a, b = (side.ravel() for side in np.meshgrid(SPECIAL, SPECIAL))
    g = Graph()
    g.set_outputs([getattr(g, kind)(g.parameter("a", a.shape), g.parameter("b", b.shape))])
    case = Case(g, {"a": a, "b": b}, [Step({})])
    (theirs,), (mine,) = crate(referee, case), ours(case)
    assert is_same(mine.outputs[0], theirs.outputs[0]).all()


@pytest.mark.parametrize("kind", [kind for kind in ROWS if kind not in deviations.REFUSED])
def test_gradients(referee: Referee, kind: str) -> None:
    found = checks.check_gradients(referee, checks.loss_around(kind, SEED), kind)
    assert (found > DEVIATES) == (kind in deviations.GRADIENT)


@pytest.mark.parametrize("kind", sorted(deviations.NOT_REPRODUCED))
def test_gradient_that_compat_does_not_reproduce(referee: Referee, kind: str) -> None:
    case = case_of(checks.loss_around(kind, SEED))
    explicit = case._replace(graph=differentiate(case.graph, compat="0.2"))
    (theirs,), (same,) = crate(referee, explicit), ours(explicit)
    assert max(map(difference, same.outputs, theirs.outputs)) > DEVIATES


@pytest.mark.parametrize("kind", sorted(deviations.REFUSED))
def test_refused_gradient(referee: Referee, kind: str) -> None:
    graph = checks.loss_around(kind, SEED).graph.to_msgpack()
    with pytest.raises(RefereeError, match=f"autodiff not supported for {kind}"):
        referee.passes(graph, ["Differentiate"])


@pytest.mark.parametrize("kind", ["SumAll", "MeanAll", "CrossEntropyLoss", "BceLoss"])
def test_gradient_of_a_last_loss(referee: Referee, kind: str) -> None:
    """Nothing comes in that could be forgotten."""
    case = case_of(checks.loss_at_the_end(kind, SEED))
    (theirs,) = crate(referee, case, passes=["Differentiate"])
    (meant,) = ours(case, compat=None, gradients="jax")
    assert_same_by_name(meant.gradients, theirs.gradients)


@pytest.mark.parametrize(("name", "seed"), [("sequence", 0), ("sequence", 1), ("sequence", 2), ("image", 0)])
def test_training_a_network(referee: Referee, name: str, seed: int) -> None:
    checks.check_network(referee, checks.network(name, seed))


def test_adam(referee: Referee) -> None:
    """Where a gradient is tiny, its sign and so its step is rounding; the others go the same way."""
    graph = rust_graph("mlp")
    parameters, inputs = graphs.leaves(graph, seed=4)
    case = Case(graph, parameters, [Step(inputs, Adam(0.01)), Step({}, Adam(0.02, 0.8, 0.99, 1e-4)), Step({})])
    theirs, meant = crate(referee, case, passes=TRAINING), ours(case, compat="0.2", gradients="jax")
    for name, start in parameters.items():
        sizes = np.abs([state.gradients[name] for state in theirs])
        clear = np.all(sizes > 1e-2 * sizes.max(), axis=0)
        assert clear.mean() > 0.1
        moved = [side[-1].parameters[name][clear] - start.ravel()[clear] for side in (meant, theirs)]
        # The bias correction of Adam is computed in f32, where 1 - 0.999 has four digits.
        assert difference(*moved) < 1e-3


def test_training_a_model(referee: Referee) -> None:
    """The graph that the crate trains, gradient operations, fused ones, joined parameters and all, as it is."""
    graph = rust_graph("smollm2-head64-loss-training")
    parameters, inputs = graphs.leaves(graph, seed=5)
    case = Case(graph, parameters, [Step(inputs, Sgd(0.05)), Step({}, Sgd(0.05))])
    for mine, their in zip(ours(case, gradients="given"), crate(referee, case), strict=True):
        assert_same(mine.outputs, their.outputs[:1])
        assert_same_by_name(mine.gradients, their.gradients, 2e-5)
        assert_same_by_name(mine.parameters, their.parameters)


RUNNABLE: Final = (
    "mlp",
    "smolvla-state-projection",
    "smollm2-head64",
    "smollm2-head64-inference",
    "smollm2-head64-prefill",
    "smollm2-head64-prefill-inference",
    "transformer-block",
    "transformer-block-inference",
    "whisper-small-test",
)
"""Models whose heads are 64 wide, or that have none."""


@pytest.mark.parametrize("name", RUNNABLE)
def test_model(referee: Referee, name: str) -> None:
    graph = rust_graph(name)
    parameters, inputs = graphs.leaves(graph, seed=6)
    case = Case(graph, parameters, [Step(inputs)])
    (theirs,) = crate(referee, case)
    (same,) = ours(case)
    assert_same(same.outputs, theirs.outputs)


def test_decoding(referee: Referee) -> None:
    """Caches that a step fills and later ones read, at positions in any order.

    The attention reads the nodes of the writes, which even the crate's scheduler orders.
    """
    m = Maker([SEED, 7])
    g = m.graph
    position = g.input_u32("position", (1,))
    q, k, v = (g.input(name, (1, width)) for name, width in (("q", 128), ("k", 64), ("v", 64)))
    caches = [g.cache_write(new, g.parameter(name, (5, 64)), position) for name, new in (("keys", k), ("values", v))]
    g.set_outputs([g.cached_attention(q, *caches, position, 2, 1, 64)])
    rng = np.random.default_rng(7)
    steps = [
        Step(
            {"position": np.uint32([at]), **{n: rng.standard_normal(s) for n, s in (("q", 128), ("k", 64), ("v", 64))}}
        )
        for at in (0, 1, 2, 3, 1, 4)
    ]
    case = Case(g, {}, steps)
    for mine, their in zip(ours(case), crate(referee, case), strict=True):
        assert_same(mine.outputs, their.outputs)
        assert mine.parameters["keys"].tolist() == their.parameters["keys"].tolist()
        assert mine.parameters["values"].tolist() == their.parameters["values"].tolist()


def test_toposort(referee: Referee) -> None:
    """What the optimizer leaves, deleted nodes and larger ids before smaller ones, in the crate's new order."""
    graph = rust_graph("smollm2-head64-inference").to_msgpack()
    assert Graph.from_msgpack(graph).toposort().to_msgpack() == referee.passes(graph, ["Toposort"])


def test_fuzzer_ends_with_a_count(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "fuzz_against_meganeura.py"
    arguments = ["--minutes", "0", "--kind", "Neg", "--json", "--folder", str(tmp_path)]
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"graphs": {"results": 1}, "found": 0, "kept": {}}
    assert list(tmp_path.iterdir()) == []


def test_every_deviation_is_explained() -> None:
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    names = [deviation.name for deviation in deviations.DEVIATIONS]
    assert len(set(names)) == len(names)
    assert [name for name in names if f"`{name}`" not in text] == []
