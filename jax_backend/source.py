"""A jaxpr as Python source that needs jax alone."""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import Any, Final

import numpy as np

from jax_backend.source_rules import WEAK, array_literal, expression, literal
from jax_backend.tensor_methods import snake_case

_PLACE: Final = re.compile(r"([A-Z]\w*)\.(\d+)")
_WIDE: Final = re.compile(r"\b(?:u?int64|float64|complex128)\b")
_SHORT: Final = 64
"""Letters of an expression that goes into another one instead of getting a name."""
_WIDTH: Final = 120
"""Letters of a line of names."""
_INLINED: Final = 6
"""Equations of an inner function that stands where it is called."""
_FOLDED: Final = frozenset(
    {"broadcast_in_dim", "convert_element_type", "reshape", "squeeze", "transpose", "neg", "slice"}
)
"""Primitives whose result goes into the expression that uses it, if there is one and it is short."""
_IMPORTED: Final = frozenset({"jax", "jnp", "np", "lax", "primitives"})
_HEADER: Final = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives
"""


def identifier(name: str) -> str:
    """`name` as a Python name.

    >>> identifier("w.0"), identifier("lambda")
    ('w_0', 'lambda_')
    """
    made = re.sub(r"\W+", "_", name).rstrip("_") or "_"
    return f"_{made}" if made[:1].isdigit() else f"{made}_" if iskeyword(made) or made in _IMPORTED else made


def module_source(
    name: str, closed: Any, arguments: Mapping[str, str], results: Sequence[str], labels: Mapping[int, str]
) -> str:
    """A module with the function `name`.

    Args:
        name: of the function.
        closed: its closed jaxpr.
        arguments: defaults (or nothing) by name; the jaxpr takes them in the order of their names, and the function as
            they stand here, those with a default last.
        results: what is said about each result, in the docstring.
        labels: what is said about each operation, by its place.
    """
    writer = _Writer()
    jaxpr = closed.jaxpr
    scope = _Scope(writer, labels, "v")
    scope.names.update(zip(jaxpr.invars, map(identifier, sorted(arguments)), strict=True))
    for variable, value in zip(jaxpr.constvars, closed.consts, strict=True):
        scope.names[variable] = array_literal(np.asarray(value))
    scope.add(jaxpr)
    returned = [scope.operand(v) for v in jaxpr.outvars]
    body = [*scope.lines, f"return {returned[0]}" if len(returned) == 1 else f"return ({_listed(returned)})"]
    order = sorted(arguments.items(), key=lambda item: bool(item[1]))
    signature = _listed([f"{identifier(n)}={default}" if default else identifier(n) for n, default in order])
    texts = [*body, *writer.functions, *(str(v.aval) for v in jaxpr.invars)]
    is_wide = any(_WIDE.search(text) for text in texts)
    return _module(identifier(name), signature, body, results, writer.functions, is_wide)


def _module(
    name: str, signature: str, body: list[str], results: Sequence[str], functions: Iterable[str], is_wide: bool
) -> str:
    doc = textwrap.fill(f'"""-> {", ".join(results)}."""', _WIDTH, initial_indent="    ", subsequent_indent="    ")
    text = textwrap.indent("\n".join(body), "    ")
    if is_wide:  # 64-bit types are off by default
        text = f"    with jax.enable_x64(True):\n{textwrap.indent(text, '    ')}"
    header = (
        _HEADER
        if "primitives." in text or any("primitives." in f for f in functions)
        else "\n".join(line for line in _HEADER.splitlines() if "primitives" not in line) + "\n"
    )
    inner = "".join(f"\n\n{function}\n" for function in functions)
    return f"{header}{inner}\n\ndef {name}({signature}):\n{doc}\n{text}\n"


def _listed(items: Sequence[str]) -> str:
    """Items between brackets: on one line where they fit, else one on each."""
    line = ", ".join(items)
    return line if len(line) <= _WIDTH - 20 else "\n" + "".join(f"    {item},\n" for item in items)


class _Writer:
    """The inner functions of a module, each text once."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}

    @property
    def functions(self) -> list[str]:
        """Their definitions, in the order of need."""
        return [text.replace("def _(", f"def {name}(", 1) for text, name in self._named.items()]

    def function(self, closed: Any, hint: str) -> str:
        """The name of a function that does what a closed jaxpr does; it returns a tuple."""
        jaxpr = getattr(closed, "jaxpr", closed)
        names = [f"a{n}" for n in range(len(jaxpr.invars))]
        scope = _Scope(self, {}, "b")
        scope.names.update(zip(jaxpr.invars, names, strict=True))
        for variable, value in zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True):
            scope.names[variable] = array_literal(np.asarray(value))
        scope.add(jaxpr)
        results = "".join(f"{scope.operand(v)}, " for v in jaxpr.outvars)
        lines = [*scope.lines, f"return ({results})"]
        text = f"def _({', '.join(names)}):\n" + "\n".join(f"    {line}" for line in lines)
        if text not in self._named:
            base = identifier(hint.strip("_<>") or "inner")
            taken = sum(n == f"_{base}" or n.startswith(f"_{base}_") for n in self._named.values())
            self._named[text] = f"_{base}" + (f"_{taken + 1}" if taken else "")
        return self._named[text]


class _Scope:
    """The lines of one function body, and what its variables are called or are."""

    def __init__(self, writer: _Writer, labels: Mapping[int, str], prefix: str) -> None:
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}
        self._writer = writer
        self._labels = labels
        self._prefix = prefix
        self._taken: Counter[str] = Counter()
        self._place = ""

    def add(self, jaxpr: Any) -> None:
        """Append the equations of `jaxpr`."""
        uses = _uses(jaxpr)
        for e in jaxpr.eqns:
            if all(type(v).__name__ == "DropVar" or not uses[v] for v in e.outvars) and not e.effects:
                continue
            self._comment(str(e.source_info.name_stack))
            self._equation(e, uses)

    def operand(self, variable: Any, *, weak: bool = False) -> str:
        """A variable or a literal as source; a number alone where the operator gives it its dtype (`weak`)."""
        if not hasattr(variable, "val"):
            return self.names[variable]
        value = np.asarray(variable.val, variable.aval.dtype)
        plain = value.item() if value.dtype.kind in "iu" else float(value) if value.dtype.kind not in "bc" else None
        if weak and plain is not None and np.isfinite(plain):
            return repr(plain)
        return literal(value)

    def _comment(self, stack: str) -> None:
        found = _PLACE.findall(stack)
        kind, place = found[0] if found else ("", "")
        if (stack_place := kind + place) != self._place:
            self._place = stack_place
            if place and int(place) in self._labels:
                backward = " (backward)" if "transpose" in stack else ""
                self.lines.append(f"# {place}: {self._labels[int(place)]}{backward}")

    def _name(self, e: Any) -> str:
        found = _PLACE.search(str(e.source_info.name_stack))
        base = f"{snake_case(found[1])}_{found[2]}" if found else self._prefix
        self._taken[base] += 1
        return base if found and self._taken[base] == 1 else f"{base}{'_' if found else ''}{self._taken[base]}"

    def _equation(self, e: Any, uses: Mapping[Any, int]) -> None:
        name = e.primitive.name
        if name in _INNER:
            _INNER[name](self, e)
            return
        weak = (
            name in WEAK
            and (name != "div" or e.outvars[0].aval.dtype.kind == "f")
            and sum(hasattr(v, "val") for v in e.invars) == 1
        )
        text = expression(e, [self.operand(v, weak=weak) for v in e.invars])
        if e.primitive.multiple_results:
            self.assign(e, text)
        elif name in _FOLDED and uses[e.outvars[0]] == 1 and len(text) <= _SHORT:
            self.names[e.outvars[0]] = text
        else:
            made = self.names[e.outvars[0]] = self._name(e)
            self.lines.append(f"{made} = {text}")

    def assign(self, e: Any, text: str, first: int | None = None) -> None:
        """Name each of several results; with `first`, that many stand in a tuple before a tuple of the others."""
        if not e.outvars:
            return
        for v in e.outvars:
            self.names[v] = "_" if type(v).__name__ == "DropVar" else self._name(e)
        shown = [f"{self.names[v]}, " for v in e.outvars]
        parts = [shown] if first is None else [shown[:first], shown[first:]]
        tuples = [f"({''.join(part)})" if part else "_" for part in parts]
        self.lines.append(f"{', '.join(tuples)} = {text}")

    def call(self, e: Any, closed: Any, hint: str) -> None:
        """A function that is called once here: its equations where there are few, else its name."""
        jaxpr = getattr(closed, "jaxpr", closed)
        operands = [self.operand(v) for v in e.invars]
        consts = getattr(closed, "consts", ())
        if len(jaxpr.eqns) > _INLINED:
            self.assign(e, f"{self._writer.function(closed, hint)}({', '.join(operands)})")
            return
        outer = dict(self.names)
        self.names.update(zip(jaxpr.invars, operands, strict=True))
        for variable, value in zip(jaxpr.constvars, consts, strict=True):
            self.names[variable] = array_literal(np.asarray(value))
        stack, uses = (
            str(e.source_info.name_stack),
            Counter(v for q in jaxpr.eqns for v in q.invars if not hasattr(v, "val")),
        )
        uses.update(v for v in jaxpr.outvars if not hasattr(v, "val"))
        for inner in jaxpr.eqns:
            self._equation(inner.replace(source_info=e.source_info) if stack else inner, uses)
        results = [self.operand(v) for v in jaxpr.outvars]
        self.names = outer
        self.names.update(zip(e.outvars, results, strict=True))

    def functions(self, many: Sequence[Any], hint: str) -> list[str]:
        """The names of functions that do what closed jaxprs do."""
        return [self._writer.function(closed, hint) for closed in many]


def _uses(jaxpr: Any) -> Counter[Any]:
    """How often each variable is read."""
    variables = [*(v for e in jaxpr.eqns for v in e.invars), *jaxpr.outvars]
    return Counter(v for v in variables if not hasattr(v, "val"))


def _jit(scope: _Scope, e: Any) -> None:
    scope.call(e, e.params["jaxpr"], e.params["name"])


def _custom(scope: _Scope, e: Any) -> None:
    """The function itself; what its derivative is to be is not part of its value."""
    scope.call(e, e.params["call_jaxpr"], "custom")


def _cond(scope: _Scope, e: Any) -> None:
    branches = scope.functions(e.params["branches"], "branch")
    operands = [scope.operand(v) for v in e.invars]
    if (platforms := e.params.get("branches_platforms")) is not None:
        named = [f"{p[0]}={f}" if p else f"default={f}" for p, f in zip(platforms, branches, strict=True)]
        several = [f"{n}={f}" for p, f in zip(platforms, branches, strict=True) for n in (p or ())[1:]]
        scope.assign(e, f"lax.platform_dependent({', '.join([*operands[1:], *named, *several])})")
    else:
        scope.assign(e, f"lax.switch({operands[0]}, [{', '.join(branches)}], {', '.join(operands[1:])})")


def _scan(scope: _Scope, e: Any) -> None:
    p = e.params
    function = scope.functions([p["jaxpr"]], "step")[0]
    operands = [scope.operand(v) for v in e.invars]
    consts, rest = operands[: p["num_consts"]], operands[p["num_consts"] :]
    carry, xs = rest[: p["num_carry"]], rest[p["num_carry"] :]
    k = p["num_carry"]
    halves = f"(lambda both: (both[:{k}], both[{k}:]))"
    step = f"lambda carry, xs: {halves}({function}({''.join(f'{c}, ' for c in consts)}*carry, *xs))"
    given = f"({''.join(f'{c}, ' for c in carry)}), ({''.join(f'{x}, ' for x in xs)})"
    scope.assign(e, f"lax.scan({step}, {given}, length={p['length']}, reverse={p['reverse']})", k)


def _while(scope: _Scope, e: Any) -> None:
    p = e.params
    condition, body = scope.functions([p["cond_jaxpr"], p["body_jaxpr"]], "loop")
    operands = [scope.operand(v) for v in e.invars]
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    of_condition, of_body, start = operands[:first], operands[first:second], operands[second:]
    test = f"lambda state: {condition}({''.join(f'{c}, ' for c in of_condition)}*state)[0]"
    step = f"lambda state: {body}({''.join(f'{c}, ' for c in of_body)}*state)"
    scope.assign(e, f"lax.while_loop({test}, {step}, ({''.join(f'{s}, ' for s in start)}))")


def _platform(scope: _Scope, e: Any) -> None:
    scope.names[e.outvars[0]] = "0"  # the `cond` that follows chooses by its own list


_INNER: Final[dict[str, Callable[[_Scope, Any], None]]] = {
    "cond": _cond,
    "custom_jvp_call": _custom,
    "custom_vjp_call": _custom,
    "jit": _jit,
    "pjit": _jit,
    "platform_index": _platform,
    "remat2": _custom,
    "checkpoint": _custom,
    "scan": _scan,
    "while": _while,
}
"""Primitives that hold functions."""
