"""Checkpoints of a session, in the layout of Meganeura: safetensors, every tensor flat f32.

Keys are `<parameter>`, `adam_m.<parameter>` and `adam_v.<parameter>`; the metadata has `adam_step`, the steps of Adam
done so far. Source: meganeura 0.2 `session.rs`.
"""

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ir.errors import WireError

FIRST: Final = "adam_m."
SECOND: Final = "adam_v."
STEPS: Final = "adam_step"


class Checkpoint(NamedTuple):
    """What a checkpoint holds, by the names of the parameters."""

    parameters: dict[str, np.ndarray]
    first: dict[str, np.ndarray]
    """Adam's averages of the gradients."""
    second: dict[str, np.ndarray]
    """Adam's averages of their squares."""
    steps: int

    def save(self, path: str | Path) -> None:
        """Write the file."""
        from safetensors.numpy import save_file

        groups = {"": self.parameters, FIRST: self.first, SECOND: self.second}
        tensors = {prefix + name: np.ravel(a) for prefix, group in groups.items() for name, a in group.items()}
        save_file(tensors, path, metadata={STEPS: str(self.steps)})

    @classmethod
    def load(cls, path: str | Path) -> "Checkpoint":
        """Read a file.

        Raises:
            WireError: it is no safetensors file, or `adam_step` is no number.
            FileNotFoundError: there is none.
        """
        from safetensors import SafetensorError, safe_open

        found = cls({}, {}, {}, 0)
        try:
            with safe_open(path, "np") as file:
                for key in tuple(file.keys()):
                    group, name = found._group(key)
                    group[name] = file.get_tensor(key)
                steps = (file.metadata() or {}).get(STEPS, "0")
        except SafetensorError as error:
            raise WireError(str(path), f"not a safetensors file: {error}") from None
        if not steps.isdecimal():
            raise WireError(f"{path}: {STEPS}", f"expected a number of steps, got {steps!r}")
        return found._replace(steps=int(steps))

    def _group(self, key: str) -> tuple[dict[str, np.ndarray], str]:
        for prefix, group in ((FIRST, self.first), (SECOND, self.second)):
            if key.startswith(prefix):
                return group, key.removeprefix(prefix)
        return self.parameters, key
