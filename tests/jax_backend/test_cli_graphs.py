"""Meganeura graphs on the command line."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ir.formats import is_graph_file
from ir.meganeura import Graph
from ir.meganeura.files import load_graph
from tests.jax_backend.test_cli import invoke

X = np.float32([[1, -2, 3], [0.5, 4, -1]])
W = np.float32([[1, 2], [3, 4], [5, 6]])


def product() -> Graph:
    """relu(x w) and its column sums; a parameter that nothing needs."""
    graph = Graph()
    y = graph.relu(graph.matmul(graph.input("x", [2, 3]), graph.parameter("w", [3, 2])))
    graph.parameter("unused", [5])
    graph.set_outputs([y, graph.sum_all(y)])
    return graph


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The graph as JSON, as msgpack and behind gzip, with files for its leaves."""
    (tmp_path / "graph.json").write_bytes(product().to_json())
    (tmp_path / "graph.msgpack").write_bytes(product().to_msgpack())
    (tmp_path / "graph.json.gz").write_bytes(gzip.compress(product().to_json()))
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "w.npy", W)
    save_file({"w": W, "other": X}, tmp_path / "w.safetensors")
    return tmp_path


@pytest.mark.parametrize("name", ["graph.json", "graph.msgpack", "graph.json.gz"])
def test_a_graph_runs_on_arrays_from_files(folder: Path, name: str) -> None:
    given = ["--input", f"x={folder / 'x.npy'}", "--input", f"w={folder / 'w.npy'}"]
    result = invoke("run", folder / name, *given, "--json", "--no-cache")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    want = np.maximum(X.astype(np.float64) @ W, 0)
    assert found["outputs"][0] == {"shape": [2, 2], "dtype": "float32", "values": want.tolist()}
    assert found["outputs"][1]["values"] == [want.sum()]
    assert found["summary"]["left_at_zeros"] == ["unused"]


def test_weights_come_from_safetensors_and_outputs_go_to_files(folder: Path) -> None:
    options = ["--weights", folder / "w.safetensors", "--save", folder / "out", "--no-cache"]
    result = invoke("run", folder / "graph.json", "--input", f"x={folder / 'x.npy'}", *options)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == "output 0  float32[2, 2]  [10, 12, 7.5, 11]"
    assert "zeros, as nobody set them: unused" in result.output
    np.testing.assert_array_equal(np.load(folder / "out" / "output0.npy"), np.maximum(X @ W, 0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "y={x}"], "unknown input: y"),
        (["--input", "x={w}"], "x: expected 6 elements, flat or in shape [2, 3], got shape [3, 2]"),
        (["--input", "x"], "--input: expected NAME=FILE.npy, got x"),
        (["--input", "x={graph}"], "no .npy file"),
        (["--check"], "--check: expected a file that holds a session"),
        (["--seed", "3"], "--seed: expected a file that holds a session"),
    ],
)
def test_what_does_not_fit_is_said(folder: Path, arguments: list[str], message: str) -> None:
    files = {"x": folder / "x.npy", "w": folder / "w.npy", "graph": folder / "graph.json"}
    result = invoke("run", folder / "graph.json", "--no-cache", *(a.format(**files) for a in arguments))
    assert result.exit_code != 0
    assert message in f"{result.output}{result.exception}"


def test_graph_options_are_refused_for_a_session(tmp_path: Path) -> None:
    session = tmp_path / "s.jsonl"
    session.write_text("{}\n", encoding="utf-8")
    result = invoke("run", session, "--compat", "0.2")
    assert result.exit_code == 2
    assert "--compat: expected a file that holds a graph" in result.output


def test_inspect_counts_what_a_graph_needs(folder: Path) -> None:
    result = invoke("inspect", folder / "graph.json", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["nodes"], found["operations"], found["outputs"]) == (6, 3, ["F32<[2, 2]>", "F32<[1]>"])
    assert found["kinds"] == {"MatMul": 1, "Relu": 1, "SumAll": 1}
    assert [leaf["name"] for leaf in found["leaves"]] == ["x", "w"]
    text = invoke("inspect", folder / "graph.msgpack").output
    assert "6 nodes, 3 operations needed" in text
    assert "1 parameter, 24 B" in text


def test_a_large_constant_is_named_by_its_size() -> None:
    graph = Graph()
    constant = graph.constant([float(n) for n in range(1000)], [1000])
    assert str(graph.op(constant)) == "Constant(out=t0 f32[1000], data=<4000 bytes>)"


def test_inspect_names_caches() -> None:
    graph = Graph()
    cache = graph.parameter("cache", [4, 2])
    graph.cache_write(graph.input("row", [1, 2]), cache, graph.input_u32("kv_pos", [1]))
    graph.set_outputs([graph.neg(cache)])
    from jax_backend.cli.inspect_graph import report, summarise

    summary = summarise(graph)
    assert [leaf.name for leaf in summary.leaves if leaf.is_cache] == ["cache"]
    assert "1 of them caches, 32 B" in report(summary, top=20)


def test_inspect_draws_a_graph(folder: Path) -> None:
    result = invoke("inspect", folder / "graph.json", "--graph", folder / "graph.svg")
    assert result.exit_code == 0, result.output
    assert "3 operations" in result.output
    assert "MatMul" in (folder / "graph.svg").read_text(encoding="utf-8")


def test_inspect_of_a_graph_loads_no_jax(folder: Path) -> None:
    code = (
        "import sys; from jax_backend.cli import cli; "
        f"cli(['inspect', {str(folder / 'graph.json')!r}], standalone_mode=False); assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_session_is_no_graph_and_a_broken_graph_says_where(tmp_path: Path) -> None:
    lines = tmp_path / "session.jsonl"
    lines.write_text('{"Init": {}}\n', encoding="utf-8")
    assert not is_graph_file(lines)
    broken = tmp_path / "broken.json"
    broken.write_text(
        '{"nodes": [{"id": 0, "op": "Nope", "inputs": [], "ty": {"shape": [1], "dtype": "F32"}}], '
        '"outputs": [0], "derived_params": []}',
        encoding="utf-8",
    )
    assert is_graph_file(broken)
    result = invoke("inspect", broken)
    assert "nodes[0].op: unknown operation 'Nope'" in str(result.exception)
    truncated = tmp_path / "graph.json.gz"
    truncated.write_bytes(gzip.compress(product().to_json())[:40])
    with pytest.raises(Exception, match="no gzip file"):
        load_graph(truncated)
