"""What the commands share: errors as one line, tables, numbers for people."""

import math
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import click

from ir.errors import IrError


@contextmanager
def wrapped() -> Generator[None]:
    """Turn what a user can cause into one line on stderr and exit status 2."""
    try:
        yield
    except (IrError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns under a header; a column of numbers is aligned at its right.

    >>> print(table(("op", "count"), [("Add", 12), ("Matmul", 3)]))
    op      count
    Add        12
    Matmul      3
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    numeric = [all(row[n].replace(".", "").isdigit() for row in cells) for n in range(len(header))]

    def line(row: Sequence[str]) -> str:
        parts = [cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(row, widths, numeric, strict=True)]
        return "  ".join(parts).rstrip()

    return "\n".join(map(line, [list(header), *cells]))


def size(num_bytes: int) -> str:
    """A number of bytes with its unit.

    >>> size(999), size(2048), size(3_500_000)
    ('999 B', '2.0 KiB', '3.3 MiB')
    """
    value, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def plain(value: Any) -> Any:
    """`value`, a number or nested lists of them, as JSON can hold it.

    >>> plain([1.5, [float("nan"), float("-inf")]])
    [1.5, ['NaN', '-Infinity']]
    """
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
