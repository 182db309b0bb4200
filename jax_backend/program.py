"""Recorded programs as functions.

    program = Program.load("step.bxs", segment=1)     # `program_recorder.record` records one, `Recording` has them all
    program.inputs, program.outputs, program.ops
    program(x, w)
    program.grad("t12", wrt="t3")             # `function` says what else there is

A program is a relative graph (`ir.stream`) with the bindings of one execution. It does not matter where the graph comes
from: `Program(graph, bindings)` takes any operations that have a lowering.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

import jax
import jax.numpy as jnp
import numpy as np

from ir.dtype import BF16, F16
from ir.errors import StreamError
from ir.meganeura.core import GraphCore
from ir.meganeura.program import program as graph_program
from ir.meganeura.types import Compat
from ir.op import Op, ScalarSlot, scalar_slots, values
from ir.scalar import ScalarIr, scalar
from ir.stream import (
    Bindings,
    Entry,
    RelativeGraph,
    SymbolTable,
    bound_ops,
    build_graph,
    segment,
    split_drops,
    start_slots,
    survivors,
)
from ir.tensor import TensorData
from jax_backend import host
from jax_backend.custom_ops import CustomOpRegistry, default_custom_ops
from jax_backend.dtypes import jax_dtype
from jax_backend.executable import abstract_value
from jax_backend.function import Form, Function
from jax_backend.interpreter import run_graph
from jax_backend.ops._shared import precision as products_in
from jax_backend.optimize_report import OptimizeReport, repeated, unused
from jax_backend.types import Array, Device
from jax_backend.values import SEED, Results, Value, seed_words

if TYPE_CHECKING:
    from jax_backend.cache import ProgramCache
    from jax_backend.runner import Call


class Program(Function):
    """A relative graph and the bindings of one execution, as a function.

    Inputs and outputs are named by their tensor ids, `t7`, or as `names` says; a recorded scalar is a parameter named
    by the place of its operation in `ops` and its field, `op3_rhs`, a slice start `op5_start0`, by axis.

    Args:
        graph: operations on numbered values.
        bindings: ids, scalars and slice starts of the recorded execution.
        order: ids of the inputs that come first, in this order; the others follow in the order of their first use.
        data: what inputs held, by id; inputs that are not there have to be given at a call.
        names: of tensors, by id.
        results: names of the outputs in order; by default those of their tensors.
        seed: of the random state, where a call gives none; or its four words.
        custom_ops: what `Custom` may run; by default the ids that Burn itself sends.
        precision: of f32 products and convolutions.
        name: in reports.
    """

    def __init__(
        self,
        graph: RelativeGraph,
        bindings: Bindings,
        *,
        order: Sequence[int] = (),
        data: Mapping[int, Any] | None = None,
        names: Mapping[int, str] | None = None,
        results: Sequence[str] = (),
        seed: int | np.ndarray = 0,
        custom_ops: CustomOpRegistry | None = None,
        precision: jax.lax.Precision = jax.lax.Precision.HIGHEST,
        name: str = "program",
    ) -> None:
        self.graph: Final = graph
        self.bindings: Final = bindings
        self.custom_ops: Final = custom_ops or default_custom_ops()
        self.precision: Final = precision
        self._names = {n: _named(id, names or {}) for n, id in enumerate(bindings.ids)}
        self._results = tuple(results) or tuple(self._names[n] for n in graph.outputs)
        parameters = list(_parameters(graph, bindings))
        tensors = graph.tensors()
        place = {id: n for n, id in enumerate(order)}
        self._order = sorted(graph.inputs, key=lambda n: place.get(bindings.ids[n], len(order)))
        inputs = [_value(self._names[n], tensors[n]) for n in self._order]
        recorded = {v.name: array for v, array in parameters}
        recorded[SEED] = seed_words(seed) if isinstance(seed, int) else seed
        by_name = {self._names[n]: bindings.ids[n] for n in graph.inputs}
        random = [Value(SEED, (4,), np.dtype(np.uint32), "seed")] if graph.num_random else []
        taken = [v.name for v in (*inputs, *(v for v, _ in parameters))]
        if twice := {n for n in taken if taken.count(n) > 1}:
            raise StreamError(f"{name}: expected one input of each name, got several called {', '.join(sorted(twice))}")
        super().__init__(
            self._run,
            [*inputs, *(v for v, _ in parameters), *random],
            _Recorded(recorded, by_name, data or {}),
            Form(name, draws=graph.num_random, labels=_Labels(self)),
        )

    @classmethod
    def from_ops(cls, ops: Sequence[Op], outputs: Sequence[int] | None = None, **options: Any) -> "Program":
        """The program of concrete operations, as a stream brings them.

        Args:
            ops: in order; `Init` and `Drop` may be among them.
            outputs: ids that come out; by default whatever is made and not used up.
            options: as for the class.

        Raises:
            StreamError: an input is `NotInit`, or no operation makes one of `outputs`.
        """
        kept, dropped = split_drops(ops)
        table = SymbolTable()
        part = segment([table.entry(op) for op in kept])
        wanted = survivors(part, dropped) if outputs is None else list(outputs)
        graph = build_graph(*part.key, [part.numbers[id] for id in wanted])
        return cls(graph, part.bindings, **options)

    @classmethod
    def load(cls, path: str | os.PathLike[str], segment: "int | slice | None" = None) -> "Program":
        """The program of a recorded session; its inputs have the values that they had there.

        Args:
            path: a capture (`.bxs`) or JSON lines.
            segment: which part: a number, as `Recording.spans` lists the programs that a recorder makes of the session
                (from the end, if it is negative), or a slice of operations; by default the whole session.

        Raises:
            IrError: the file is no session, or has no such part.
            OSError: the file cannot be read.
        """
        from jax_backend.recording import Recording  # it makes programs

        recording = Recording.load(path)
        if not isinstance(segment, int):
            return recording.program(segment or slice(None))
        spans = recording.spans()
        if not -len(spans) <= segment < len(spans):
            raise StreamError(f"Program.load: expected one of {len(spans)} segments of {path}, got {segment}")
        return recording.program(spans[segment])

    @classmethod
    def of_graph(cls, graph: GraphCore, compat: Compat = None, *, data: Mapping[str, Any] | None = None) -> "Program":
        """The program of a Meganeura graph: its leaves by name come in, in node order.

        Results are named `output0` and so on, in the graph's order; a cache that the graph writes is an input, and its
        new value the result `new_<name>`, as `scan` wants it.

        Args:
            graph: the graph.
            compat: which meaning its operations have.
            data: what leaves hold, by name; others have to be given at a call.

        Raises:
            StreamError: two leaves have one name.
        """
        made = graph_program(graph, compat)
        relative = made.relative()
        leaves = dict(enumerate(leaf.name for leaf in made.leaves))
        by_node = {leaf.out.id.value: leaf.name for leaf in made.leaves}
        written = [by_node[node] for node, _ in made.states]
        results = [*(f"output{n}" for n in range(len(made.outputs))), *(f"new_{name}" for name in written)]
        known = {n: data[name] for n, name in leaves.items() if data and name in data}
        bindings = Bindings(list(range(relative.num_values)), [], ())
        return cls(relative, bindings, data=known, names=leaves, results=results, order=relative.inputs, name="graph")

    @classmethod
    def of_call(cls, call: "Call", **options: Any) -> "Program":
        """The program that a recorder is about to run, with its arguments: what `Recorder(watch=..)` sees.

        Its inputs are kept as they are: a donated one is gone once the call is made.
        """
        made = call.executable
        scalars, moving, key = made.packer.unpack(jnp.asarray(call.pack)) if call.pack is not None else ([], [], None)
        given = iter(moving)
        starts = tuple(int(next(given)) if t else s for t, s in zip(made.traced, made.starts, strict=True))
        numbers = [scalar(s.item()) for s in scalars]
        bindings = Bindings(list(range(made.graph.num_values)), numbers, starts)
        if key is not None:
            options.setdefault("seed", np.asarray(key))
        return cls(made.graph, bindings, data=dict(zip(made.graph.inputs, call.inputs, strict=True)), **options)

    @property
    def ops(self) -> tuple[Op, ...]:
        """The operations in order, with the recorded ids, scalars and slice starts."""
        return bound_ops(self.graph, self.bindings)

    def optimize_report(self, device: Device | None = None) -> OptimizeReport:
        """What XLA makes of the recorded operations on `device`, and which of them are there for nothing."""
        made = super().optimize_report(device)
        return replace(made, unused=unused(self.graph), repeated=repeated(self.ops))

    def name_of(self, id: int) -> str:
        """What a tensor of the recording is called here."""
        return self._names[self.bindings.ids.index(id)]

    def _repr_html_(self) -> str:
        from jax_backend.notebook import program_html

        return program_html(self)

    def _run(self, arguments: dict[str, Any]) -> Results:
        scalars = [jnp.asarray(arguments[v.name]) for v in self.parameters if v.role == "scalar"]
        starts = [_start(arguments.get(v.name, self.defaults[v.name])) for v in self.parameters if v.role == "start"]
        inputs = [arguments[self._names[n]] for n in self.graph.inputs]
        key = jnp.asarray(arguments[SEED]) if SEED in arguments else None
        with products_in(self.precision):
            results = run_graph(self.graph, inputs, scalars, starts, key, self.custom_ops)
        return dict(zip(self._results, results, strict=True))


class _Labels(Mapping[int, str]):
    """The operations of a program as text, made when they are asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @cached_property
    def _texts(self) -> list[str]:
        return [str(op) for op in self._program.ops]

    def __getitem__(self, place: int) -> str:
        return self._texts[place]

    def __contains__(self, place: object) -> bool:
        return place in range(len(self))

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._texts)


def _start(given: Any) -> Any:
    """A start that is known while tracing as an int, so that the slice is static."""
    return int(given) if isinstance(given, np.ndarray) else given


def pending_program(
    entries: Sequence[Entry], outputs: Sequence[int], array: Callable[[int], Array], cache: "ProgramCache", name: str
) -> Program:
    """The program of those of `entries` that lead to `outputs`; `array` gives what an input holds.

    Raises:
        StreamError: nothing is asked for, or something that none of them makes.
    """
    made = {id for entry in entries for id in entry.outputs}
    if not outputs or not made.issuperset(outputs):
        known = [f"t{id}" for id in outputs if id not in made]
        raise StreamError(f"{name}: expected tensors that are not computed yet, got {known}; `record()` keeps them all")
    needed, wanted = list[Entry](), set(outputs)
    for entry in reversed(entries):
        if wanted.intersection(entry.outputs):
            needed.append(entry)
            wanted = wanted.difference(entry.outputs).union(entry.inputs)
    part = segment(needed[::-1])
    graph = build_graph(*part.key, [part.numbers[id] for id in outputs])
    ids = [part.bindings.ids[n] for n in graph.inputs]
    return Program(
        graph,
        part.bindings,
        data={id: array(id) for id in ids},
        custom_ops=cache.custom_ops,
        precision=cache.precision,
        name=name,
    )


class _Recorded(Mapping[str, Any]):
    """The recorded values by name; tensor data become arrays when they are asked for."""

    def __init__(self, numbers: Mapping[str, Any], ids: Mapping[str, int], data: Mapping[int, Any]) -> None:
        self._numbers = numbers
        self._ids = ids
        self._data = data

    def __getitem__(self, name: str) -> Any:
        if name in self._numbers:
            return self._numbers[name]
        found = self._data[self._ids[name]]
        return host.to_numpy(found) if isinstance(found, TensorData) else found

    def __contains__(self, name: object) -> bool:
        return name in self._numbers or self._ids.get(cast("str", name), -1) in self._data

    def __iter__(self) -> Iterator[str]:
        yield from self._numbers
        yield from (name for name, id in self._ids.items() if id in self._data)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _named(id: int, names: Mapping[int, str]) -> str:
    return names.get(id, f"t{id}")


def _value(name: str, tensor: Any) -> Value:
    aval = abstract_value(tensor, None)
    return Value(name, aval.shape, np.dtype(aval.dtype))


def _parameters(graph: RelativeGraph, bindings: Bindings) -> Iterator[tuple[Value, np.ndarray]]:
    """The scalars of each operation, then its slice starts, in the order of the graph, with their recorded values."""
    numbers, starts = iter(bindings.scalars), iter(bindings.starts)
    for place, op in enumerate(graph.ops):
        for name, slot in zip(_scalar_names(op), scalar_slots(op), strict=True):
            value = Value(f"op{place}_{name}", (), jax_dtype(slot.dtype), "scalar")
            yield value, host_scalar(next(numbers), slot)
        for axis, slot in enumerate(start_slots(op)):
            value = Value(f"op{place}_start{axis}", (), np.dtype(np.int32), "start", slot.size - slot.count)
            yield value, np.asarray(next(starts), np.int32)


def _scalar_names(op: Op) -> list[str]:
    """A name per traced scalar: its field, numbered where the field holds several."""
    names: list[str] = []
    for field, value in values(op):
        if field.is_lifted:
            lift: Any = field.role
            _, numbers = lift.split(value)
            last = field.path.rpartition(".")[2]
            names += [last] if len(numbers) == 1 else [f"{last}{n}" for n in range(len(numbers))]
    return names


def host_scalar(value: ScalarIr, slot: ScalarSlot) -> np.ndarray:
    """A traced scalar as a 0-d array in the dtype of its slot; halves are rounded from float32, as Burn does."""
    number = slot.convert(value.value, slot.dtype)
    with np.errstate(over="ignore"):
        wide = np.asarray(number, np.float32 if slot.dtype in (F16, BF16) else jax_dtype(slot.dtype))
        return wide.astype(jax_dtype(slot.dtype))
