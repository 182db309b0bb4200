"""What a file holds, by its first bytes; imports nothing that would read it."""

import os
import re
from typing import Final

GZIP: Final = b"\x1f\x8b"
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
    return head.startswith(GZIP) or any(form.match(head) for form in (_JSON, _MSGPACK))
