"""Runs generated cases on Burn's own interpreter and on ours, and holds the answers against each other.

    with Judge() as judge:
        report = campaign(judge, forms_of("conv"), seed=0, structures=3, fills=4)

Both sides answer with the outputs, the aliases and the ids that are alive at the end, or refuse. What differs is a
`Difference`; `exemptions` says which of them are known, and why.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from ir.dtype import BoolStore, DType, ParamDType, PlainDType
from ir.errors import IrError
from ir.operation import OperationIr
from ir.ops.control import Drop
from ir.registry import Form
from ir.tensor import TensorData
from ir.verify import Level
from ir.wire.codec import encode_operation, to_compact
from jax_backend.cache import ProgramCache
from jax_backend.recorder import Recorder
from tests.burn.case import IDS_PER_CASE, Case, fill
from tests.burn.compare import Outcome, compare
from tests.burn.draw import Draw
from tests.burn.exemptions import exemption
from tests.burn.generators import Plan, dtypes_of, plan
from tests.burn.oracle import ORACLE, Answer, Oracle, build


class Judge:
    """Both sides: Burn's interpreter in a process of its own, ours here, compiled and operation by operation."""

    def __init__(self) -> None:
        self._oracle = Oracle(build(ORACLE), timeout_s=20)
        self._cache = ProgramCache(max_programs=64)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._oracle.close()

    def burn(self, cases: Sequence[Case], seed: int) -> list[Outcome]:
        """Burn's answers."""
        encoded: list[bytes | None] = [_encoded(case, seed) for case in cases]
        answers = iter(self._oracle.run([e for e in encoded if e is not None]))
        absent = Outcome(refusal="Burn 0.22.1 has no such operation")
        return [absent if e is None else _outcome(next(answers)) for e in encoded]

    def ours(self, cases: Sequence[Case], seed: int, *, eager: bool = False) -> list[Outcome]:
        """Our answers: all cases recorded, then read; compiled, they are one program."""
        recorder = Recorder(cache=self._cache, eager=eager, verify=Level.full, seed=seed, name="differential")
        for case in cases:
            for id, data in case.tensors.items():
                recorder.register_tensor_data_id(id, data)
            for new, source in case.aliases:
                recorder.register_alias(new, source)
        for case in cases:
            recorder.register_operation(case.operation)
            for tensor in case.drops:
                recorder.drop(tensor.id.value)
        read = [_read(recorder, case) for case in cases]
        live = set(recorder.handles.ids())
        recorder.close()
        return [
            Outcome(reads, frozenset(live & case.ids()), why) for case, (reads, why) in zip(cases, read, strict=True)
        ]


def _read(recorder: Recorder, case: Case) -> tuple[tuple[TensorData, ...], str | None]:
    if not case.reads:
        recorder.flush()
    try:
        return tuple(recorder.read_tensor(t).result() for t in case.reads), None
    except IrError as reason:
        return (), f"{type(reason).__name__}: {reason}"


def _encoded(case: Case, seed: int) -> bytes | None:
    """The case as the oracle reads it; None where Burn's wire has no such operation."""
    try:
        ops = [encode_operation(o) for o in (case.operation, *(OperationIr("Drop", None, Drop(t)) for t in case.drops))]
    except IrError:
        return None
    tensors = [[id, to_compact(data)] for id, data in case.tensors.items()]
    return msgspec.msgpack.encode(
        [seed, tensors, case.aliases, [msgspec.Raw(op) for op in ops], [to_compact(t) for t in case.reads]]
    )


def _outcome(answer: Answer) -> Outcome:
    if "ok" not in answer:
        panic = answer.get("panic")
        text = f"{panic['message']} ({panic['location']}, {panic['stage']})" if panic else str(answer)
        return Outcome(refusal=text)
    failed = [item["error"] for item in answer["ok"] if isinstance(item, dict)]
    if failed:
        return Outcome(refusal=f"read: {failed[0]}")
    reads = tuple(TensorData(memoryview(b), tuple(dims), _dtype(name)) for b, dims, name in answer["ok"])
    return Outcome(reads, frozenset(answer["live"]))


def _dtype(name: Any) -> DType:
    return PlainDType(name) if isinstance(name, str) else ParamDType(Bool=BoolStore(name["Bool"]))


class Found(NamedTuple):
    """An unexplained difference, and the choices that lead to it again."""

    text: str
    path: str
    dtype: DType
    structure: list[int]
    elements: list[int]


@dataclass
class Report:
    """What a campaign found: cases seen, and executed by both sides, by path; those covered by each exemption."""

    seen: Counter[str] = field(default_factory=Counter[str])
    both: Counter[str] = field(default_factory=Counter[str])
    exempted: Counter[str] = field(default_factory=Counter[str])
    differences: list[Found] = field(default_factory=list[Found])

    def add(self, other: "Report") -> None:
        """Count another report in."""
        self.seen += other.seen
        self.both += other.both
        self.exempted += other.exempted
        self.differences += other.differences


class Sketch(NamedTuple):
    """A structure and the choices behind it."""

    form: Form
    dtype: DType
    plan: Plan
    choices: list[int]


def sketches(forms: Sequence[Form], seed: int, structures: int) -> Iterator[Sketch]:
    """`structures` plans of every form for every dtype."""
    for form in forms:
        rng = np.random.default_rng([seed, zlib.crc32(form.path.encode())])
        for dtype in dtypes_of(form):
            for _ in range(structures):
                draw = Draw(rng)
                yield Sketch(form, dtype, plan(form, draw, dtype), draw.choices)


def campaign(
    judge: Judge, forms: Sequence[Form], *, seed: int, structures: int, fills: int, eager_every: int = 0
) -> Report:
    """Run `fills` cases of each of `structures` plans per form and dtype.

    All plans are one stream, compiled once and run `fills` times; the first fill of every `eager_every`-th plan runs
    operation by operation too.
    """
    report = Report()
    made = list(sketches(forms, seed, structures))
    rng = np.random.default_rng([seed, len(made)])
    for turn in range(fills):
        draws = [Draw(rng) for _ in made]
        cases = [fill(s.form, s.plan, d, n * IDS_PER_CASE) for n, (s, d) in enumerate(zip(made, draws, strict=True))]
        burn = judge.burn(cases, seed + turn)
        choices = [(s, d.choices) for s, d in zip(made, draws, strict=True)]
        _judge(report, cases, choices, burn, judge.ours(cases, seed + turn), "compiled")
        if eager_every and turn == 0:
            some = slice(None, None, eager_every)
            ours = judge.ours(cases[some], seed, eager=True)
            _judge(report, cases[some], choices[some], burn[some], ours, "eager")
    return report


def _judge(
    report: Report,
    cases: Sequence[Case],
    choices: Sequence[tuple[Sketch, list[int]]],
    burn: Sequence[Outcome],
    ours: Sequence[Outcome],
    how: str,
) -> None:
    for case, (sketch, elements), theirs, mine in zip(cases, choices, burn, ours, strict=True):
        path = case.form.path
        report.seen[path] += 1
        report.both[path] += theirs.refusal is None and mine.refusal is None
        difference = compare(case, theirs, mine, how)
        if difference is None:
            continue
        if (known := exemption(difference)) is not None:
            report.exempted[known] += 1
        else:
            report.differences.append(Found(str(difference), path, sketch.dtype, sketch.choices, elements))
