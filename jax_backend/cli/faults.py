"""What `diff` and `shrink` share: the sides, the search, and how a fault is shown."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jax_backend.cli.progress import progress
from jax_backend.cli.text import plain

if TYPE_CHECKING:
    import numpy as np

    from jax_backend.check import Comparison
    from jax_backend.differences import Fault
    from jax_backend.faults import Search
    from jax_backend.recording import Recording
    from jax_backend.sides import Side

SHOWN = 8
"""Elements of a tensor that are printed; JSON has them all."""


def sides(left: str, right: str | None) -> tuple["Side", "Side | None"]:
    """The sides that a user names; accelerators are left alone where both run on a CPU."""
    from jax_backend import devices

    devices.share_memory()
    if left.startswith("cpu") and (right is None or right.startswith(("cpu", "recorded", "ws://"))):
        devices.prepare("cpu")
    from jax_backend.sides import parse

    return parse(left), parse(right) if right else None


def found(search: "Search", recording: "Recording") -> "Fault | None":
    """The first fault, with progress."""
    with progress(len(recording.ops), "operations") as tick:
        return search.find(recording, tick)


def smallest(search: "Search", recording: "Recording", fault: "Fault", seconds: float, out: Path) -> str:
    """Write the smallest recording that still fails. Returns a line about it."""
    click.echo(f"making it small, {seconds:g} s at most ..", err=True)
    small = search.smallest(recording, fault, seconds=seconds)
    small.save(out)
    return written(small, out)


def written(small: "Recording", out: Path) -> str:
    """A line about a recording that was written."""
    uploads = f"{len(small.data)} uploaded tensor{'s' * (len(small.data) != 1)}"
    return f"{out}: {len(small.ops)} operation{'s' * (len(small.ops) != 1)} on {uploads}"


def fault_text(file: Path, fault: "Fault", left: str, right: str | None) -> str:
    """A fault for people."""
    from jax_backend.lowering import lowering_name

    what = "fails" if fault.error else "differs" if fault.comparison else "makes a NaN or an infinity"
    against = f" against {right}" if right else ""
    lines = [f"{file}: {left}{against}: op {fault.place} of {fault.total} {what}", f"  {fault.op}"]
    lines.append(f"  lowered by {lowering_name(type(fault.op))}")
    if fault.error:
        lines.append(f"  {fault.error}")
    if fault.comparison is not None:
        c = fault.comparison
        share = (
            f"{c.num_different} of {c.num_elements} elements differ beyond {c.tolerance}, by {c.max_abs:.3g} at most"
        )
        lines.append(f"  out {fault.tensor}: {share if c.num_elements else c.note}")
        lines += [f"    [{','.join(map(str, d.index))}] {left} {d.got!r}, {right} {d.want!r}" for d in c.first]
    if fault.left is not None:
        lines.append(f"  out {fault.tensor}  {left}: {preview(fault.left)}")
    if fault.right is not None:
        lines.append(f"  out {fault.tensor}  {right}: {preview(fault.right)}")
    for operand in fault.inputs:
        same = "" if operand.right is None else " (the same on both sides)" if operand.is_same else ""
        lines.append(f"  in  {operand.tensor}  {left}: {preview(operand.left)}{same}")
        if operand.right is not None and not operand.is_same:
            lines.append(f"  in  {operand.tensor}  {right}: {preview(operand.right)}")
    if (alone := fault.by_itself) is not None:
        lines.append(f"  {_verdict(alone, fault, left, right)}")
    return "\n".join(lines)


def _verdict(alone: "Comparison", fault: "Fault", left: str, right: str | None) -> str:
    """What the operation does on equal inputs."""
    if not alone.agrees:
        return f"by itself, on the inputs of {left}, {right} differs too, by {alone.max_abs:.3g}: it is this operation"
    names = ", ".join(f"t{o.tensor.id.value}" for o in fault.inputs if not o.is_same)
    return (
        f"by itself, on the inputs of {left}, {right} agrees: the difference came in with {names}; "
        "--by-itself passes over such operations"
    )


def preview(values: "np.ndarray") -> str:
    """The first elements of an array, and its range where it has more."""
    flat = values.reshape(-1)
    shown = ", ".join(f"{v:.9g}" if isinstance(v, float) else str(v).lower() for v in _numbers(flat[:SHOWN]))
    if flat.size <= SHOWN:
        return f"[{shown}]"
    return f"[{shown}, ...] of {flat.size}"


def _numbers(values: "np.ndarray") -> list[Any]:
    return values.astype("float64").tolist() if values.dtype.kind not in "biuf" else values.tolist()


def _values(array: "np.ndarray | None") -> Any:
    return None if array is None else plain(_numbers(array))


def fault_object(fault: "Fault | None", left: str, right: str | None, extra: dict[str, Any]) -> dict[str, Any]:
    """A fault for JSON; None where there is none."""
    if fault is None:
        return {"fault": None, "left": left, "right": right}
    from jax_backend.lowering import lowering_name

    made: dict[str, Any] = {
        "op": fault.place,
        "operations": fault.total,
        "kind": fault.op.kind,
        "text": str(fault.op),
        "lowering": lowering_name(type(fault.op)),
        "error": fault.error or None,
        "output": {"tensor": str(fault.tensor), "left": _values(fault.left), "right": _values(fault.right)},
        "inputs": [
            {"tensor": str(o.tensor), "left": _values(o.left), "right": _values(o.right), "same": o.is_same}
            for o in fault.inputs
        ],
    }
    made["agrees_by_itself"] = None if fault.by_itself is None else fault.by_itself.agrees
    if (c := fault.comparison) is not None:
        made["different"] = c.num_different
        made["elements"] = c.num_elements
        made["largest_difference"] = plain(c.max_abs)
        made["tolerance"] = {"rtol": c.tolerance.rtol, "atol": c.tolerance.atol}
    return {"fault": made, "left": left, "right": right, **extra}
