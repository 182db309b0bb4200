"""The graphs that the crate's own model builders and passes made: `tests/meganeura/models`."""

import gzip
from functools import cache
from pathlib import Path

from ir.meganeura import Graph

FOLDER = Path(__file__).parents[1] / "meganeura" / "models"


def contents(folder: Path = FOLDER) -> dict[str, bytes]:
    """Every file by its graph's name, uncompressed: JSON begins with `{`, the others are msgpack."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.iterdir()):
        name = path.name.partition(".")[0]
        found[name] = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return found


@cache
def rust_graph(name: str) -> Graph:
    """The graph of this name."""
    content = contents()[name]
    return Graph.from_json(content) if content.startswith(b"{") else Graph.from_msgpack(content)


def names(suffix: str = "") -> list[str]:
    """The names that end with `suffix`."""
    return [name for name in contents() if name.endswith(suffix)]
