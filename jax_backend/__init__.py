"""Runs the programs of `ir` on CPU, GPU and TPU through JAX and XLA.

The public names load on first use, so that the command line can answer without importing jax.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jax_backend.cache import ProgramCache
    from jax_backend.capturing import CapturingRecorder
    from jax_backend.collective import Spmd, run_spmd
    from jax_backend.custom_ops import CustomOpRegistry
    from jax_backend.function import Function
    from jax_backend.program import Program
    from jax_backend.program_recorder import record
    from jax_backend.reads import ReadResult
    from jax_backend.recorder import Recorder
    from jax_backend.recording import Recording
    from jax_backend.tensor import Tensor

_HOMES: Final = {
    "CapturingRecorder": "jax_backend.capturing",
    "CustomOpRegistry": "jax_backend.custom_ops",
    "Function": "jax_backend.function",
    "Program": "jax_backend.program",
    "ProgramCache": "jax_backend.cache",
    "ReadResult": "jax_backend.reads",
    "Recorder": "jax_backend.recorder",
    "Recording": "jax_backend.recording",
    "Spmd": "jax_backend.collective",
    "Tensor": "jax_backend.tensor",
    "record": "jax_backend.program_recorder",
    "run_spmd": "jax_backend.collective",
}

__all__ = [
    "CapturingRecorder",
    "CustomOpRegistry",
    "Function",
    "Program",
    "ProgramCache",
    "ReadResult",
    "Recorder",
    "Recording",
    "Spmd",
    "Tensor",
    "record",
    "run_spmd",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jax_backend' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
