"""Sessions: what goes in is checked, caches are state, checkpoints and executables are found again."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from ir.errors import DTypeError, ShapeError, StreamError, WireError
from ir.meganeura import DerivedParam, Graph
from jax_backend.graph_function import UnknownName
from jax_backend.meganeura import Session
from jax_backend.program_store import ProgramStore
from tests.jax_backend.sessions import SHAPES, assert_same, mean_of_product, numbers, trained, values

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


def fused() -> Graph:
    """A product with the parameter gate+up, which two others stand in."""
    g = Graph()
    g.parameter("gate", [1, 2])
    g.parameter("up", [1, 1])
    g.set_outputs([g.matmul(g.input("x", [1, 1]), g.parameter("gate+up", [1, 3]))])
    g.derived_params.append(DerivedParam("gate+up", (("gate", 2), ("up", 1)), 1))
    return g


@pytest.mark.parametrize("has_whole", [False, True])
def test_a_warm_start_prefers_a_fused_parameter_to_its_parts(tmp_path: Path, has_whole: bool) -> None:
    tensors = {"gate": np.array([1, 2], np.float32), "up": np.array([3], np.float32)}
    if has_whole:
        tensors["gate+up"] = np.array([4, 5, 6], np.float32)
    save_file(tensors, tmp_path / "a.safetensors")
    session = Session(fused())
    assert session.warm_start(tmp_path / "a.safetensors") == []
    assert session.read_param("gate+up").tolist() == [[4, 5, 6] if has_whole else [1, 2, 3]]
    assert session.read_param("up").tolist() == [[6 if has_whole else 3]]
    save_file({"gate": np.array([7, 8], np.float32)}, tmp_path / "b.safetensors")
    assert session.warm_start(tmp_path / "b.safetensors") == ["gate+up", "up"]


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
    session.fill_caches({"k_cache": k[:, :3].tolist(), "v_cache": jnp.asarray(v[:, :3])})
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
