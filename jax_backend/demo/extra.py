"""Packages that only the demo needs."""

from importlib import import_module
from typing import Any

from ir.errors import IrError


class MissingExtra(IrError):
    """A package of an extra is not installed."""


def require(module: str, mend: str = "pip install 'burn-xla[plots]'") -> Any:
    """The module, of a package that `mend` brings.

    Raises:
        MissingExtra: it is not installed; the message has the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the demo needs {error.name}: {mend}") from None
