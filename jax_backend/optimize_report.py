"""What XLA made of a function: which recorded operations it fused, dropped, or computes once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ir.op import Op, map_operands
from ir.stream import RelativeGraph
from ir.tensor import TensorId
from jax_backend.compiled import Compiled, Cost
from jax_backend.op_times import places

_INSTRUCTION: Final = re.compile(r"^ +(?:ROOT )?%?([\w.-]+) = .*? ([a-z][\w-]*)\(")
_NO_WORK: Final = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})
SHOWN: Final = 40
"""Instructions that are printed."""


@dataclass(frozen=True)
class Instruction:
    """An instruction that runs, and the operations that it does work of, by their places."""

    name: str
    opcode: str
    ops: tuple[int, ...]


@dataclass(frozen=True)
class OptimizeReport:
    """What became of the operations of a function.

    `instructions` run one by one; the operations in `gone` have none, since they only change how others' results are
    looked at. `unused` lead to no output; `repeated` are pairs of an operation and an earlier one that does the same.
    """

    name: str
    labels: Mapping[int, str]
    stablehlo_ops: int
    instructions: tuple[Instruction, ...]
    gone: tuple[int, ...]
    cost: Cost
    unused: tuple[int, ...] = ()
    repeated: tuple[tuple[int, int], ...] = ()

    @property
    def fusions(self) -> tuple[Instruction, ...]:
        """The instructions that do work of several operations."""
        return tuple(i for i in self.instructions if len(i.ops) > 1)

    def __str__(self) -> str:
        c = self.cost
        lines = [
            f"{self.name}: {len(self.labels)} operations, {self.stablehlo_ops} in StableHLO, "
            f"{len(self.instructions)} instructions, {len(self.fusions)} of them for several operations",
            f"{c.flops:,.0f} flops, {c.bytes_accessed:,.0f} bytes moved, {c.peak_bytes:,} at once",
        ]
        lines += [f"  {i.name}: {i.opcode} of {', '.join(map(self._label, i.ops))}" for i in self.instructions[:SHOWN]]
        if len(self.instructions) > SHOWN:
            lines.append(f"  and {len(self.instructions) - SHOWN} more")
        if self.gone:
            lines.append(f"without an instruction: {', '.join(map(self._label, self.gone))}")
        if self.unused:
            lines.append(f"lead to no output: {', '.join(map(self._label, self.unused))}")
        lines += [f"{self._label(later)} computes what {self._label(first)} does" for later, first in self.repeated]
        return "\n".join(lines)

    def _label(self, place: int) -> str:
        return f"{self.labels[place].partition('(')[0]}.{place}" if place in self.labels else f"op {place}"


def report(name: str, labels: Mapping[int, str], stablehlo: str, compiled: Compiled) -> OptimizeReport:
    """The report of a compiled function, as far as its HLO tells."""
    hlo = compiled.hlo()
    owners = places(hlo)
    entry = hlo[hlo.index("\nENTRY ") :] if "\nENTRY " in hlo else hlo
    found: list[Instruction] = []
    for line in entry.splitlines():
        match = _INSTRUCTION.match(line)
        if match and match[2] not in _NO_WORK:
            found.append(Instruction(match[1], match[2], owners.get(match[1], ())))
    present = {place for instruction in found for place in instruction.ops}
    gone = tuple(place for place in labels if place not in present)
    count = sum(bool(re.match(r"\s+(?:%\S+ = )?\"?stablehlo\.", line)) for line in stablehlo.splitlines())
    return OptimizeReport(name, labels, count, tuple(found), gone, compiled.cost())


def unused(graph: RelativeGraph) -> tuple[int, ...]:
    """Places of the operations that lead to no output of a graph."""
    wanted, idle = set(graph.outputs), list[int]()
    for place in range(len(graph.ops) - 1, -1, -1):
        op = graph.ops[place]
        if wanted.isdisjoint(t.id.value for t in op.outputs):
            idle.append(place)
        else:
            wanted.update(t.id.value for t in op.inputs)
    return tuple(idle[::-1])


def repeated(ops: Sequence[Op]) -> tuple[tuple[int, int], ...]:
    """Operations that compute what an earlier one does: the same kind, fields and operands. Draws never do."""
    first: dict[object, int] = {}
    names: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    for place, op in enumerate(ops):
        if op.uses_random:
            continue
        key = map_operands(
            op, lambda f, t: replace(t, id=TensorId(0 if f.is_output else names.get(t.id.value, t.id.value)))
        )
        earlier = first.setdefault((op.kind, key), place)
        if earlier != place:
            found.append((place, earlier))
            pairs = zip(op.outputs, ops[earlier].outputs, strict=True)
            names.update((mine.id.value, names.get(theirs.id.value, theirs.id.value)) for mine, theirs in pairs)
    return tuple(found)
