"""The referee answers what is known by hand, and makes the committed graphs."""

from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pytest

from tests.meganeura.referee import TRAINING, Adam, Referee, RefereeError, Sgd, State, Step, driver, dump
from tests.meganeura_ir.rust_graphs import contents

Raw: TypeAlias = Any


def node(id: int, op: Raw, inputs: list[int], *shape: int, dtype: str = "F32") -> Raw:
    return {"id": id, "op": op, "inputs": inputs, "ty": {"shape": shape, "dtype": dtype}}


def graph(*nodes: Raw) -> bytes:
    return msgspec.msgpack.encode({"nodes": nodes, "outputs": [len(nodes) - 1], "derived_params": []})


MEAN = graph(
    node(0, {"Input": {"name": "x"}}, [], 4, 8),
    node(1, {"Parameter": {"name": "w"}}, [], 8, 4),
    node(2, "MatMul", [0, 1], 4, 4),
    node(3, "MeanAll", [2], 1),
)
ONES = {"x": np.ones((4, 8))}
TENTHS = {"w": np.full((8, 4), 0.1)}
CACHE = graph(
    node(0, {"Input": {"name": "row"}}, [], 1, 3),
    node(1, {"Parameter": {"name": "cache"}}, [], 2, 3),
    node(2, {"Input": {"name": "at"}}, [], 1, dtype="U32"),
    node(3, "CacheWrite", [0, 1, 2], 2, 3),
)


def test_sgd_then_adam(referee: Referee) -> None:
    """Mean of x @ w, all gradients 1/4: SGD moves by rate/4, the first step of Adam by the rate."""
    steps = [Step(ONES, Sgd(0.1)), Step({}, Sgd(0.1)), Step({}, Adam(0.01))]
    states = referee.run(MEAN, TENTHS, steps, passes=TRAINING)
    assert [state.outputs[0] for state in states] == pytest.approx([0.8, 0.6, 0.4], rel=1e-6)
    assert states[2].gradients["w"].tolist() == [0.25] * 32
    weights = [state.parameters["w"][0] for state in states]
    # The bias correction of Adam is computed in f32, where 1 - 0.999 has four digits.
    assert weights == pytest.approx([0.075, 0.05, 0.04], abs=1e-4 * 0.01)


def test_step_without_optimizer_changes_nothing(referee: Referee) -> None:
    (state,) = referee.run(MEAN, TENTHS, [Step(ONES)], passes=TRAINING)
    assert state.parameters["w"].tolist() == [np.float32(0.1)] * 32


def test_parameters_and_inputs_start_as_zero_and_stay(referee: Referee) -> None:
    states = referee.run(MEAN, {}, [Step(ONES), Step({"x": np.zeros((4, 8))})])
    assert [state.outputs[0].tolist() for state in states] == [[0], [0]]
    states = referee.run(MEAN, TENTHS, [Step(ONES), Step({})])
    assert states[0].outputs[0] == states[1].outputs[0] == pytest.approx(0.8)


def test_cache_keeps_its_rows(referee: Referee) -> None:
    rows = [Step({"row": np.float32([[n, n, n]]), "at": np.uint32([at])}) for n, at in ((1, 1), (2, 0))]
    states = referee.run(CACHE, {}, rows)
    assert [state.parameters["cache"].tolist() for state in states] == [[0, 0, 0, 1, 1, 1], [2, 2, 2, 1, 1, 1]]


def test_differentiate_appends_the_gradients(referee: Referee) -> None:
    nodes, outputs, _ = msgspec.msgpack.decode(referee.passes(MEAN, ["Differentiate"]))
    assert len(nodes) == 8
    assert outputs == [3, 7]
    assert nodes[7] == [7, "MatMulAT", [0, 5], [[8, 4], "F32"]]
    assert nodes[5] == [5, {"Constant": [[1 / 16] * 16]}, [], [[4, 4], "F32"]]


def test_panic_is_the_crates_own_and_leaves_the_next_request_alone(referee: Referee) -> None:
    with pytest.raises(RefereeError, match=r"autodiff not supported for CacheWrite.*\(meganeura-[^/]*/src/autodiff"):
        referee.passes(CACHE, ["Differentiate"])
    with pytest.raises(RefereeError, match="unknown input: y"):
        referee.run(MEAN, TENTHS, [Step({"y": np.zeros(1)})])
    assert referee.run(MEAN, TENTHS, [Step(ONES)])[0].outputs[0] == pytest.approx(0.8)


def test_request_that_does_not_decode_is_refused(referee: Referee) -> None:
    with pytest.raises(RefereeError, match="Nonsense"):
        referee.passes(graph(node(0, "Nonsense", [], 1)), [])


def test_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.meganeura.referee.DRIVERS", (tmp_path,))
    with pytest.raises(RefereeError, match="scripts/install_vulkan installs Mesa 25"):
        driver()


def test_driver_that_garbles_sizes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    garbled = State((np.float32([0]),), {}, {})
    monkeypatch.setattr(Referee, "run", lambda *_: [garbled])
    with pytest.raises(RefereeError, match=r"a convolution comes out wrong.*install_vulkan"):
        Referee()


def test_crate_makes_the_committed_graphs(tmp_path: Path) -> None:
    """After a change of `referee/src/models.rs`: `python -m tests.meganeura.referee` writes them again."""
    dump(tmp_path)
    made, committed = contents(tmp_path), contents()
    assert made.keys() == committed.keys()
    assert [name for name in made if made[name] != committed[name]] == []
