"""Sessions: what goes in is checked, what comes out is right, training does what Meganeura's does, caches are state."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from ir.errors import DTypeError, ShapeError, StreamError, WireError
from ir.meganeura import DerivedParam, Graph, differentiate
from jax_backend.graph_function import UnknownName
from jax_backend.meganeura import Session
from jax_backend.program_store import ProgramStore
from jax_backend.training import Adam, Sgd


def mean_of_product() -> Graph:
    """mean(x w) with x (4, 8), w (8, 4)."""
    g = Graph()
    g.set_outputs([g.mean_all(g.matmul(g.input("x", [4, 8]), g.parameter("w", [8, 4])))])
    return g


def regression() -> Graph:
    """Mean squared error of a network of two layers with 3 inputs, 5 units, 2 outputs, on 7 rows."""
    g = Graph()
    x, target = g.input("x", [7, 3]), g.input("target", [7, 2])
    h = g.tanh(g.bias_add(g.matmul(x, g.parameter("fc1.weight", [3, 5])), g.parameter("fc1.bias", [5])))
    y = g.bias_add(g.matmul(h, g.parameter("fc2.weight", [5, 2])), g.parameter("fc2.bias", [2]))
    g.set_outputs([g.mse_loss(y, target), y])
    return g


SHAPES = {"fc1.weight": (3, 5), "fc1.bias": (5,), "fc2.weight": (5, 2), "fc2.bias": (2,)}


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def trained(**options: Any) -> Session:
    session = Session(regression(), gradients="jax", **options)
    for n, (name, shape) in enumerate(SHAPES.items()):
        session.set_parameter(name, numbers(n, *shape))
    for name, data in (("x", numbers(10, 7, 3)), ("target", numbers(11, 7, 2))):
        session.set_input(name, np.broadcast_to(data, session.inputs[name]))
    return session


def by_hand(parameters: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of `regression` in float64."""
    p = {name: value.astype(np.float64) for name, value in parameters.items()}
    x, target = numbers(10, 7, 3).astype(np.float64), numbers(11, 7, 2).astype(np.float64)
    h = np.tanh(x @ p["fc1.weight"] + p["fc1.bias"])
    off = h @ p["fc2.weight"] + p["fc2.bias"] - target
    d_y = 2 * off / off.size
    d_h = d_y @ p["fc2.weight"].T * (1 - h * h)
    grads = {"fc1.weight": x.T @ d_h, "fc1.bias": d_h.sum(0), "fc2.weight": h.T @ d_y, "fc2.bias": d_y.sum(0)}
    return float((off * off).mean()), grads


def values(session: Session, names: Sequence[str] = tuple(SHAPES)) -> dict[str, np.ndarray]:
    return {name: session.read_param(name) for name in names}


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], rtol: float = 1e-5) -> None:
    assert found.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=rtol, atol=1e-6, err_msg=name)


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


# ---- what goes in


def test_unset_buffers_are_zeros_and_inputs_stay() -> None:
    session = Session(mean_of_product())
    session.step()
    assert session.read_loss() == 0
    session.set_input("x", jnp.ones(32, jnp.float32))
    session.set_parameter("w", np.ones((8, 4)))
    for _ in range(2):
        session.step()
        assert session.read_loss() == 8


def test_what_the_caller_does_to_an_array_afterwards_changes_nothing() -> None:
    session = Session(mean_of_product())
    x, w = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32)
    session.set_input("x", x)
    session.set_parameter("w", w)
    x[:], w[:] = 5, 5
    session.step()
    assert session.read_loss() == 8


def test_names_and_lengths_are_checked() -> None:
    session = Session(mean_of_product())
    with pytest.raises(UnknownName, match="unknown parameter: v; the graph has w"):
        session.set_parameter("v", [1.0])
    with pytest.raises(UnknownName, match="unknown input: w; the graph has x"):
        session.set_input("w", [1.0])
    with pytest.raises(ShapeError, match=r"x: expected 32 elements, flat or in shape \[4, 8\], got shape \[31\]"):
        session.set_input("x", np.zeros(31))
    with pytest.raises(ShapeError, match=r"x: expected 32 elements, flat or in shape \[4, 8\], got shape \[8, 4\]"):
        session.set_input("x", np.zeros((8, 4)))
    with pytest.raises(UnknownName, match="output 0: expected 0 to 0; there are no step"):
        session.read_output()
    session.step()
    with pytest.raises(UnknownName, match="output 1: expected 0 to 0; there are 1 outputs"):
        session.read_output(1)
    with pytest.raises(UnknownName, match="no gradients: expected a step"):
        session.sgd_step(0.1)
    with pytest.raises(UnknownName, match="no parameter that learns starts with 'w'"):
        session.set_lr_multiplier("w", 2.0)
    with pytest.raises(UnknownName, match="shared: expected some of the inputs x, got y"):
        Session(mean_of_product(), batch=2, shared=["y"])


def test_indices_are_checked() -> None:
    g = Graph()
    g.set_outputs([g.embedding(g.input_u32("tokens", [2]), g.parameter("table", [5, 3]))])
    session = Session(g)
    with pytest.raises(ShapeError, match=r"tokens: .* below 5, the rows of the table of Embedding %2, got 5"):
        session.set_input("tokens", [1, 5])
    with pytest.raises(DTypeError, match=r"tokens: expected whole numbers \(u32\), got float64"):
        session.set_input("tokens", [1.0, 2.0])
    with pytest.raises(DTypeError, match="tokens: expected u32, got -1"):
        session.set_input("tokens", [-1, 2])
    table = numbers(0, 5, 3)
    session.set_parameter("table", table)
    session.set_input("tokens", [4, 0])
    session.step()
    np.testing.assert_array_equal(session.read_output(), table[[4, 0]])


def test_two_buffers_of_one_name_are_refused() -> None:
    g = Graph()
    g.set_outputs([g.add(g.parameter("w", [2]), g.parameter("w", [2]))])
    with pytest.raises(StreamError, match="Parameter 'w': expected one node of this name, got %0 and %1"):
        Session(g)


def test_a_loss_of_several_elements_is_no_loss() -> None:
    g = Graph()
    g.set_outputs([g.relu(g.input("x", [2, 3]))])
    session = Session(g)
    session.step()
    with pytest.raises(ShapeError, match=r"read_loss: expected a first output of one element, got shape \[2, 3\]"):
        session.read_loss()


def test_parts_fill_the_columns_of_a_derived_parameter() -> None:
    g = Graph()
    g.parameter("gate", [2, 3])
    g.parameter("up", [2, 1])
    g.set_outputs([g.matmul(g.input("x", [1, 2]), g.parameter("gate+up", [2, 4]))])
    g.derived_params.append(DerivedParam("gate+up", (("gate", 3), ("up", 1)), 2))
    session = Session(g)
    session.set_parameter("up", [[7], [8]])
    session.set_parameter("gate", [[1, 2, 3], [4, 5, 6]])
    assert session.read_param("gate+up").tolist() == [[1, 2, 3, 7], [4, 5, 6, 8]]
    session.set_input("x", [1, 10])
    session.step()
    assert session.read_output().tolist() == [[41, 52, 63, 87]]


# ---- checkpoints


def test_a_checkpoint_has_the_keys_of_meganeura(tmp_path: Path) -> None:
    session = trained()
    session.set_adam(0.1)
    for _ in range(3):
        session.step()
    session.save_checkpoint(tmp_path / "a.safetensors")
    found = load_file(tmp_path / "a.safetensors")
    assert found.keys() == {prefix + name for prefix in ("", "adam_m.", "adam_v.") for name in SHAPES}
    assert {a.ndim for a in found.values()} == {1}
    assert {str(a.dtype) for a in found.values()} == {"float32"}
    np.testing.assert_array_equal(found["fc1.weight"], session.read_param("fc1.weight").ravel())
    with safe_open(tmp_path / "a.safetensors", "np") as file:
        assert file.metadata() == {"adam_step": "3"}


def test_training_goes_on_where_a_checkpoint_was_written(tmp_path: Path) -> None:
    session, other = trained(), trained()
    for one in (session, other):
        one.set_adam(0.1)
    session.step()
    session.save_checkpoint(tmp_path / "a.safetensors")
    session.step()
    other.load_checkpoint(tmp_path / "a.safetensors")
    other.step()
    assert_same(values(other), values(session), rtol=0)


def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    session = trained()
    session.save_checkpoint(path)
    tensors = load_file(path)
    save_file(tensors | {"more": np.zeros(2, np.float32)}, path)
    with pytest.raises(UnknownName, match="unknown parameter: more"):
        session.load_checkpoint(path)
    save_file({name: a for name, a in tensors.items() if name != "fc1.bias"}, path)
    with pytest.raises(UnknownName, match=r"expected fc1\.bias; warm_start takes what there is"):
        session.load_checkpoint(path)
    save_file(tensors | {"fc1.bias": np.zeros(4, np.float32)}, path)
    with pytest.raises(ShapeError, match=r"fc1\.bias: expected 5 elements"):
        session.load_checkpoint(path)
    save_file(tensors | {"adam_m.fc1.bias": np.zeros(5, np.float32)}, path)
    with pytest.raises(UnknownName, match=r"expected Adam's state of fc1\.weight, fc2\.bias, fc2\.weight"):
        session.load_checkpoint(path)
    save_file(tensors, path, metadata={"adam_step": "many"})
    with pytest.raises(WireError, match="adam_step: expected a number of steps, got 'many'"):
        session.load_checkpoint(path)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(WireError, match="not a safetensors file"):
        session.load_checkpoint(path)


def test_a_checkpoint_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    session = trained()
    before = values(session)
    save_file({n: np.zeros(s, np.float32).ravel() for n, s in SHAPES.items()} | {"fc2.bias": np.zeros(9)}, path)
    with pytest.raises(ShapeError):
        session.load_checkpoint(path)
    assert_same(values(session), before, rtol=0)


def test_a_warm_start_takes_what_fits(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"fc1.weight": np.ones(15, np.float32), "fc2.bias": np.ones(9, np.float32)}, path)
    session = trained()
    before = values(session)
    assert session.warm_start(path) == ["fc1.bias", "fc2.weight", "fc2.bias"]
    assert session.read_param("fc1.weight").tolist() == [[1.0] * 5] * 3
    assert_same(values(session, ["fc2.bias"]), {"fc2.bias": before["fc2.bias"]}, rtol=0)


# ---- executables on disk


@pytest.mark.parametrize("rule", [None, "adam"])
def test_a_second_session_finds_the_executable_on_disk(tmp_path: Path, rule: str | None) -> None:
    found: list[dict[str, np.ndarray]] = []
    loaded: list[int] = []
    for _ in range(2):
        session = trained(store=ProgramStore(tmp_path))
        if rule:
            session.set_adam(0.1)
        session.step()
        found.append(values(session))
        loaded.append(session.programs.num_loaded)
    assert loaded == [0, 1]
    assert_same(found[1], found[0], rtol=0)
    other = trained(store=ProgramStore(tmp_path), batch=2)
    other.step()
    assert other.programs.num_loaded == 0


# ---- caches


def decoding(capacity: int = 5) -> Graph:
    """Attention with caches: 2 query heads on 1 key head of 2; q, k, v are inputs."""
    g = Graph()
    position = g.input_u32("kv_pos", [1])
    k, v = g.input("k", [1, 2]), g.input("v", [1, 2])
    k_cache, v_cache = g.parameter("k_cache", [capacity, 2]), g.parameter("v_cache", [capacity, 2])
    g.cache_write(k, k_cache, position)
    g.cache_write(v, v_cache, position)
    g.set_outputs([g.cached_attention(g.input("q", [1, 4]), k_cache, v_cache, position, 2, 1, 2)])
    return g


def attention_by_hand(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The last row of causal attention: q (4,), k and v (rows, 2)."""
    heads: list[np.ndarray] = []
    for head in q.reshape(2, 2).astype(np.float64):
        weights = np.exp(k @ head / np.sqrt(2))
        heads.append(weights / weights.sum() @ v)
    return np.concatenate(heads)


def test_caches_carry_over_from_run_to_run() -> None:
    session = Session(decoding())
    q, k, v = numbers(0, 5, 4), numbers(1, 5, 2), numbers(2, 5, 2)
    for n in range(5):
        for name, data in (("q", q[n]), ("k", k[n]), ("v", v[n]), ("kv_pos", [n])):
            session.set_input(name, data)
        session.step()
        wanted = attention_by_hand(q[n], k[: n + 1], v[: n + 1])
        np.testing.assert_allclose(session.read_output()[0], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(session.read_param("k_cache"), k)


def test_one_executable_serves_all_positions_and_its_caches_are_donated() -> None:
    session = Session(decoding())
    session.step()
    spent, cache = session.programs.compile_s, session.parameter("k_cache")
    for n in range(1, 5):
        session.set_input("kv_pos", [n])
        session.step()
    session.wait()
    assert session.programs.compile_s == spent
    assert cache.is_deleted()


def test_a_position_beyond_the_cache_is_refused() -> None:
    session = Session(decoding())
    with pytest.raises(ShapeError, match=r"kv_pos: .* below 5, the rows of the cache of CacheWrite %5, got 5"):
        session.set_input("kv_pos", [5])


def test_sequences_of_a_batch_have_positions_of_their_own() -> None:
    session = Session(decoding(), batch=2)
    q, k, v = numbers(0, 2, 4), numbers(1, 2, 4, 2), numbers(2, 2, 4, 2)
    session.fill_caches({"k_cache": k[:, :3], "v_cache": v[:, :3]})
    last = [3, 1]
    for name, rows in (("k", k), ("v", v)):
        session.set_input(name, np.stack([rows[n, last[n]] for n in range(2)])[:, None])
    session.set_input("q", q[:, None])
    session.set_input("kv_pos", np.array(last)[:, None])
    session.step()
    for n in range(2):
        wanted = attention_by_hand(q[n], k[n, : last[n] + 1], v[n, : last[n] + 1])
        np.testing.assert_allclose(session.read_output()[n, 0], wanted, rtol=1e-5, atol=1e-6)


def test_shared_inputs_have_no_batch_axis() -> None:
    session = Session(decoding(), batch=3, shared=["kv_pos"])
    assert session.inputs == {"kv_pos": (1,), "k": (3, 1, 2), "v": (3, 1, 2), "q": (3, 1, 4)}
    v = numbers(0, 3, 1, 2)
    session.set_input("v", v)
    session.set_input("kv_pos", [2])
    session.step()
    np.testing.assert_array_equal(session.read_param("v_cache")[:, 2], v[:, 0])
    assert not session.read_param("v_cache")[:, [0, 1, 3, 4]].any()


def test_rows_that_do_not_fit_a_cache_are_refused() -> None:
    session = Session(decoding())
    with pytest.raises(UnknownName, match="unknown cache: w; the graph has k_cache, v_cache"):
        session.fill_caches({"w": np.zeros((1, 2))})
    for shape in ((6, 2), (3, 3), (2,), (1, 3, 2)):
        with pytest.raises(ShapeError, match="k_cache: expected at most 5 rows"):
            session.fill_caches({"k_cache": np.zeros(shape)})


def test_the_device_is_that_asked_for() -> None:
    device = jax.devices()[1]
    session = Session(mean_of_product(), gradients="jax", device=device)
    session.set_adam(0.1)
    session.step()
    assert session.output().devices() == session.parameter("w").devices() == {device}


# ---- gradients that a graph carries


def test_gradients_in_the_graph_and_those_of_jax_train_alike() -> None:
    sessions = [trained(), trained_with("graph"), trained_with("given")]
    for session in sessions:
        session.set_adam(0.05)
        for _ in range(3):
            session.step()
        assert_same(values(session), values(sessions[0]), rtol=1e-4)
        assert session.read_loss() == pytest.approx(sessions[0].read_loss(), rel=1e-5)


def trained_with(gradients: Any) -> Session:
    graph = regression()
    session = Session(differentiate(graph) if gradients == "given" else graph, gradients=gradients)
    for n, (name, shape) in enumerate(SHAPES.items()):
        session.set_parameter(name, numbers(n, *shape))
    session.set_input("x", numbers(10, 7, 3))
    session.set_input("target", numbers(11, 7, 2))
    return session


def test_a_batch_averages_the_gradients_that_a_graph_carries() -> None:
    found: list[np.ndarray] = []
    for gradients in ("jax", "graph"):
        session = Session(regression(), gradients=gradients, batch=3)
        for n, (name, shape) in enumerate(SHAPES.items()):
            session.set_parameter(name, numbers(n, *shape))
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
