"""Graphs in files: JSON or msgpack, plain or behind gzip."""

import gzip
import os
import re
import zlib
from typing import Final

from ir.errors import WireError
from ir.meganeura.graph import Graph

_GZIP: Final = b"\x1f\x8b"
_JSON: Final = re.compile(rb'\s*\{\s*"(nodes|outputs|derived_params)"')
_MSGPACK: Final = re.compile(rb"\x93[\x90-\x9f\xdc\xdd]|\x83\xa5nodes")
"""An array of three that begins with an array, or a map of three that begins with the nodes."""


def is_graph_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file looks like a graph, by its first bytes; recorded sessions do not.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        head = file.read(256)
    return head.startswith(_GZIP) or any(form.match(head) for form in (_JSON, _MSGPACK))


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file, every node checked.

    Raises:
        WireError: the file holds no graph; the message names the place.
        StreamError, ShapeError, DTypeError: a node does not have the inputs that its kind needs.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read()
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise WireError(os.fspath(path), f"no gzip file: {error}") from None
    return Graph.from_json(content) if content.lstrip()[:1] == b"{" else Graph.from_msgpack(content)
