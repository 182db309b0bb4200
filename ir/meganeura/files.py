"""Graphs in files: JSON or msgpack, plain or behind gzip."""

import gzip
import os
import zlib

from ir.errors import WireError
from ir.formats import GZIP
from ir.meganeura.graph import Graph


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file, every node checked.

    Raises:
        WireError: the file holds no graph; the message names the place.
        StreamError, ShapeError, DTypeError: a node does not have the inputs that its kind needs.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read()
    if content.startswith(GZIP):
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise WireError(os.fspath(path), f"no gzip file: {error}") from None
    return Graph.from_json(content) if content.lstrip()[:1] == b"{" else Graph.from_msgpack(content)
