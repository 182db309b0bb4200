"""The pages of the operation reference, made of the registries: what is declared, what it does, what tests it."""

import ast
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ir.meganeura.ops import kinds as meganeura_kinds  # noqa: E402
from ir.meganeura.rules import checks  # noqa: E402
from ir.op import Field, Op, Role, fields  # noqa: E402
from ir.registry import forms, kinds  # noqa: E402
from ir.shapes import rule_of  # noqa: E402
from jax_backend.coverage import both, form_of  # noqa: E402
from jax_backend.lowering import lowered_kinds, lowering_of  # noqa: E402
from tests.cases import cases, families, meganeura_families  # noqa: E402
from tests.coverage import ELSEWHERE  # noqa: E402
from tests.opcase import OpCase  # noqa: E402

ROLES: Final = {
    Role.IN: "tensor in",
    Role.OPT_IN: "tensor in, optional",
    Role.IN_LIST: "tensors in",
    Role.OUT: "tensor out",
    Role.OPT_OUT: "tensor out, optional",
    Role.OUT_LIST: "tensors out",
    Role.RANGES: "slices; plain starts can be arguments of the program",
}
LIFTED: Final = "argument of the program"
STATIC: Final = "part of the program's key"


class Place(NamedTuple):
    """A line of a source file."""

    path: str
    line: int


class Family(NamedTuple):
    """The kinds that one module of an IR declares."""

    ir: str
    name: str
    module: ModuleType
    kinds: tuple[type[Op], ...]

    @property
    def page(self) -> str:
        """Path of its page in the site."""
        return f"operations/{self.ir}/{self.name}.md"


def all_families() -> list[Family]:
    """The families of both IRs, in declared order."""
    found: list[Family] = []
    for ir, known in (("burn", kinds()), ("meganeura", tuple(meganeura_kinds().values()))):
        by_module: dict[str, list[type[Op]]] = defaultdict(list)
        for kind in known:
            by_module[kind.__module__].append(kind)
        for module, mine in sorted(by_module.items()):
            found.append(Family(ir, module.rpartition(".")[2], sys.modules[module], tuple(mine)))
    return found


def pages() -> Iterator[tuple[str, str]]:
    """Path and Markdown of every page of the reference, the index and the shown sources included."""
    tested = rows_by_kind()
    notes = differences((ROOT / "docs" / "differences.md").read_text(encoding="utf-8"))
    found = all_families()
    yield "operations/index.md", index(found)
    sources: set[str] = set()
    for family in found:
        sources.add(place_of(family.kinds[0]).path)
        sources.update(place_of(lowering_of(kind)).path for kind in family.kinds if kind in lowered_kinds())
        sources.update(place_of(shape_rule(kind, family)).path for kind in family.kinds)
        yield family.page, family_page(family, tested, notes)
    for path in sorted(sources):
        yield source_page(path), shown_source(path)


def index(found: Sequence[Family]) -> str:
    """Every kind, by family."""
    lines = ["# Operations", ""]
    for ir, title in (("burn", "Burn's IR"), ("meganeura", "Meganeura's IR")):
        mine = [family for family in found if family.ir == ir]
        counts = both()[ir].count()
        lines += [f"## {title}", "", _forms_sentence(ir, sum(len(f.kinds) for f in mine), counts.total), ""]
        lines += ["| family | kinds |", "|---|---|"]
        for family in mine:
            links = ", ".join(f"[{k.__name__}]({ir}/{family.name}.md#{anchor(k)})" for k in family.kinds)
            lines.append(f"| [{family.name}]({ir}/{family.name}.md) | {links} |")
        lines.append("")
    return "\n".join(lines)


def _forms_sentence(ir: str, num_kinds: int, num_forms: int) -> str:
    if ir == "meganeura":
        return f"{num_kinds} kinds."
    return (
        f"{num_kinds} kinds; a kind stands under one or more outer variants of `OperationIr`: {num_forms} forms in all."
    )


def family_page(family: Family, tested: dict[type[Op], list[OpCase]], notes: dict[str, list[str]]) -> str:
    """All kinds of a family."""
    path = place_of(family.kinds[0]).path
    lines = [f"# {family.name}, {family.ir.capitalize()}'s IR", "", _prose(family.module.__doc__), ""]
    lines += [f"Declared in {source_link(Place(path, 1))}.", ""]
    for kind in family.kinds:
        lines += [*kind_section(kind, family, tested.get(kind, []), notes), ""]
    return "\n".join(lines)


def kind_section(kind: type[Op], family: Family, rows: Sequence[OpCase], notes: dict[str, list[str]]) -> list[str]:
    """One kind: what it is, its fields, what lowers it, what tests it, where Burn differs."""
    lines = [f"## {kind.__name__} {{ #{anchor(kind)} }}", "", _prose(kind.__doc__), ""]
    lines += ["| field | role | type |", "|---|---|---|", *map(field_row, fields(kind)), ""]
    if family.ir == "burn":
        mine = [f"`{form.path}`" for form in forms().values() if form.kind is kind]
        lines += [f"- On the wire: {', '.join(mine)}"]
    lines += [f"- Declared: {source_link(place_of(kind))}", f"- Shapes: {function_line(shape_rule(kind, family))}"]
    lines += [f"- Lowered: {lowering_line(kind)}"]
    lines += [f"- Tested: {tested_line(kind, rows)}"]
    if family.ir == "burn" and kind.__name__ in notes:
        lines += ["- Differs from Burn's backends:", *(f"    - {note}" for note in notes[kind.__name__])]
    return lines


def field_row(field: Field) -> str:
    """A row of the table of fields."""
    role = ROLES[field.role] if isinstance(field.role, Role) and field.role in ROLES else LIFTED
    if field.role is None:
        role = STATIC
    return f"| `{field.path}` | {role} | {type_name(field)} |"


def type_name(field: Field) -> str:
    """What a field that is no tensor holds."""
    if field.is_input or field.is_output or field.role is Role.RANGES:
        return ""
    hint: Any = field.type
    bare = getattr(hint, "__origin__", hint) if hasattr(hint, "__metadata__") else hint
    text = bare.__name__ if isinstance(bare, type) and not getattr(bare, "__args__", None) else str(bare)
    if isinstance(bare, type) and issubclass(bare, Struct):
        return f"`{text}`: {', '.join(bare.__struct_fields__)}"
    return "`" + re.sub(r"typing\.|\b(?:\w+\.)+|, Meta\([^)]*\)|Annotated(?=\[)", "", text).replace("|", "\\|") + "`"


def lowering_line(kind: type[Op]) -> str:
    """The function that gives a kind its meaning."""
    if kind not in lowered_kinds():
        return "none: it moves no data of its own, or the recorder runs it between programs"
    return function_line(lowering_of(kind))


def shape_rule(kind: type[Op], family: Family) -> Callable[..., Any]:
    """The function that gives the types of a kind's outputs."""
    rule = rule_of(kind) if family.ir == "burn" else checks._rules[kind]
    assert rule is not None
    return rule


def function_line(function: Callable[..., Any]) -> str:
    """A function, where it is, and the first paragraph of its docstring."""
    summary = _prose((inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " "))
    return f"`{function.__name__}`, {source_link(place_of(function))}. {summary}"


def tested_line(kind: type[Op], rows: Sequence[OpCase]) -> str:
    """How many rows of the tables run a kind, and with which dtypes."""
    if not rows:
        elsewhere = {test.rpartition(":")[2] for form, test in ELSEWHERE.items() if form.endswith(kind.__name__)}
        return f"by {', '.join(f'`{name}`' for name in sorted(elsewhere))}"
    dtypes = dict.fromkeys(t.dtype.short for row in rows for t in (*row.inputs, *row.want))
    noun = "row" if len(rows) == 1 else "rows"
    return f"{len(rows)} {noun} of the tables, with {', '.join(dtypes)}"


def rows_by_kind() -> dict[type[Op], list[OpCase]]:
    """The rows of the tables of both IRs, by kind."""
    found: dict[type[Op], list[OpCase]] = defaultdict(list)
    for family in (*families(), *meganeura_families()):
        for row in cases(family):
            form_of(row.op)
            found[type(row.op)].append(row)
    return found


def differences(page: str) -> dict[str, list[str]]:
    """What the page of differences says of a kind: rows of its tables that name it first, or in code marks."""
    names = {kind.__name__ for kind in kinds()}
    found: dict[str, list[str]] = defaultdict(list)
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| ") or len(cells) < 4:
            continue
        named = set(re.findall(r"\b[A-Z]\w+", cells[0])) | set(re.findall(r"`(\w+)`", " ".join(cells[1:])))
        for name in sorted(named & names):
            why = f" ({cells[3]})" if cells[3] else ""
            found[name].append(f"{cells[0]}. Burn: {cells[1]}. Here: {cells[2]}{why}")
    return found


# ---- places


def anchor(kind: type[Op]) -> str:
    """The anchor of a kind on its page."""
    return kind.__name__.lower()


def place_of(thing: Any) -> Place:
    """Where a class or a function is declared; a decorated function where it is written."""
    thing = inspect.unwrap(thing)
    _, line = inspect.getsourcelines(thing)
    return Place(Path(inspect.getsourcefile(thing) or "").resolve().relative_to(ROOT).as_posix(), line)


def source_page(path: str) -> str:
    """The page that shows a source file."""
    return f"source/{path.removesuffix('.py')}.md"


def source_link(place: Place) -> str:
    """A link to a line of a shown source file, from a page two folders down."""
    page = source_page(place.path).removesuffix(".md")
    return f'<a href="../../../{page}/#L-0-{place.line}"><code>{place.path}:{place.line}</code></a>'


def shown_source(path: str) -> str:
    """A source file as a page; each line has an anchor, `L-0-<number>`."""
    text = (ROOT / path).read_text(encoding="utf-8")
    title = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    head = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{title}\n\n"
    return f'{head}````python linenums="1"\n{text.rstrip()}\n````\n'


def _prose(docstring: str | None) -> str:
    """A docstring as Markdown: names of tensors keep their asterisks and brackets."""
    text = inspect.cleandoc(docstring or "")
    text = re.sub(r"(?m)^>>>.*(?:\n.+)*", "", text)
    text = re.sub(r"(?m)^( {4}.*(?:\n {4}.*)*)", r"```\n\1\n```", text)
    parts = re.split(r"(```.*?```|`[^`]*`)", text, flags=re.DOTALL)
    marks = str.maketrans({"*": r"\*", "[": r"\[", "_": r"\_", "<": "&lt;"})
    return "".join(part if n % 2 else part.translate(marks) for n, part in enumerate(parts))
