"""The graphs that the crate's own model builders and passes made: `tests/meganeura/models`."""

from functools import cache

from ir.meganeura import Graph
from tests.meganeura.graphs import MODELS, NAMES, content, load


def contents() -> dict[str, bytes]:
    """Every file by its graph's name, uncompressed: JSON begins with `{`, the others are msgpack."""
    return {path.name.partition(".")[0]: content(path) for path in sorted(MODELS.iterdir())}


@cache
def rust_graph(name: str) -> Graph:
    """The graph of this name."""
    return load(name)


def names(suffix: str = "") -> list[str]:
    """The names that end with `suffix`."""
    return [name for name in NAMES if name.endswith(suffix)]
