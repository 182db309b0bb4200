"""Configurations that Hugging Face's `config.json` holds."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Self, cast


class HuggingFaceConfig:
    """A dataclass of sizes whose fields have the names of a `config.json`."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a `config.json`; what is no field is left out."""
        found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        cls.complete(found)
        return cls(**{f.name: found[f.name] for f in fields(cast("Any", cls)) if f.name in found})

    @classmethod
    def complete(cls, found: dict[str, Any]) -> None:
        """Put into `found` what a file may say in another way, or not at all."""
