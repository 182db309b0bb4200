"""How each primitive of jax reads as Python: `rule(equation, arguments) -> expression`.

A primitive without a rule is a call of the function of its name in `jax.lax` where it has no parameters, and a `bind`
of the primitive itself (`jax.extend.core.primitives`) otherwise, so that whatever jax can trace can be printed.

Promise: an expression gives the bits that the primitive gives; where `jnp` would convert first, `lax` stands.
"""

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from ir.errors import UnsupportedOp

Equation: TypeAlias = Any
Rule: TypeAlias = Callable[[Equation, list[str]], str]

_ATOMIC: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")
_FULL: Final = re.compile(r"^jnp\.full\(\([\d, ]*\), ((?:np\.\w+\([^()]*\))|\w+), jnp\.\w+\)$")
_SMALL: Final = 64
"""Elements of an array that is written out as a list."""


def literal(value: Any) -> str:
    """A parameter, or a constant, as Python source.

    >>> literal((1, None, "a")), literal(np.dtype("float32")), literal(lax.GatherScatterMode.CLIP)
    ("(1, None, 'a')", 'jnp.float32', 'lax.GatherScatterMode.CLIP')

    Raises:
        UnsupportedOp: it is nothing that source can say.
    """
    if isinstance(value, enum.Enum):
        name = type(value).__name__
        home = "lax." if hasattr(lax, name) else "jax.sharding." if hasattr(jax.sharding, name) else ""
        if home:
            return f"{home}{name}.{value.name}"
    if isinstance(value, np.integer):
        return str(int(value))
    if isinstance(value, np.ndarray | np.generic):
        return array_literal(np.asarray(value))
    if isinstance(value, np.dtype):
        return f"jnp.{value.name}" if value.kind != "b" else "jnp.bool_"
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        if hasattr(value, "_fields"):
            return _record(value, value._fields)  # pyright: ignore[reportAttributeAccessIssue]
        return f"({', '.join(map(literal, items))}{',' if len(items) == 1 else ''})"
    if isinstance(value, float) and not np.isfinite(value):
        return f"float('{value}')"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if hasattr(lax, type(value).__name__):
        return _record(value, list(vars(value)))
    raise UnsupportedOp(f"to_python: no source for the {type(value).__name__} {value!r}")


def _record(value: Any, names: Sequence[str]) -> str:
    """A record of `jax.lax`, such as `GatherDimensionNumbers`, without the batching dims that are not there."""
    fields = {name: getattr(value, name) for name in names}
    given = [f"{n}={literal(v)}" for n, v in fields.items() if v != () or not n.endswith("batching_dims")]
    return f"lax.{type(value).__name__}({', '.join(given)})"


def array_literal(array: np.ndarray) -> str:
    """An array as Python source: a number, a list, or its bytes."""
    name = "bool_" if array.dtype.kind == "b" else array.dtype.name
    dtype = f"np.{name}" if hasattr(np, name) else f"jnp.{name}"
    if array.ndim == 0:
        return f"{dtype}({_number(array)})"
    if array.size <= _SMALL:
        plain = array.tolist() if array.dtype.kind in "biu" else [float(x) for x in array.ravel().tolist()]
        shape = "" if array.dtype.kind in "biu" else f".reshape({array.shape})"
        return f"np.array({_listed(plain)}, {dtype}){shape}"
    if (array == array.flat[0]).all():
        return f"np.full({array.shape}, {_number(array.reshape(-1)[:1].reshape(()))}, {dtype})"
    if array.ndim == 1 and array.dtype.kind in "iu" and (np.diff(array.astype(np.int64)) == 1).all():
        return f"np.arange({array[0]}, {int(array[-1]) + 1}, dtype={dtype})"
    return f"np.frombuffer(bytes.fromhex({array.tobytes().hex()!r}), {dtype}).reshape({array.shape})"


def _listed(plain: Any) -> str:
    text = repr(plain)
    return text.replace("nan", "np.nan").replace("inf", "np.inf") if "n" in text else text


def _number(array: np.ndarray) -> str:
    """A 0-d array as a Python number."""
    value = array.item() if array.dtype.kind in "biuc" else float(array)
    return _listed(value)


def wrap(text: str) -> str:
    """`text` in parentheses unless it is a name, a call or a number."""
    if set(text) <= _ATOMIC:
        return text
    depth = 0
    for letter in text:
        depth += letter in "([{"
        depth -= letter in ")]}"
        if depth == 0 and letter not in _ATOMIC and letter not in ")]}":
            return f"({text})"
    return text


def dtype_name(dtype: Any) -> str:
    """A dtype as source."""
    return literal(np.dtype(dtype))


def _keywords(params: Mapping[str, Any], leave: Sequence[str] = ()) -> str:
    return "".join(f", {name}={literal(value)}" for name, value in params.items() if name not in leave)


def _infix(sign: str) -> Rule:
    """An operator; it broadcasts by itself, so that a number spread over the other operand's shape stands alone."""

    def rule(e: Equation, a: list[str]) -> str:
        spread = [_FULL.match(text) for text in a]
        numbers = [m[1] if m and not other else text for text, m, other in zip(a, spread, spread[::-1], strict=True)]
        return f"{wrap(numbers[0])} {sign} {wrap(numbers[1])}"

    return rule


def _call(name: str, *leave: str) -> Rule:
    """A function of the arguments and of every parameter but those of `leave`."""
    return lambda e, a: f"{name}({', '.join(a)}{_keywords(e.params, leave)})"


def _divide(e: Equation, a: list[str]) -> str:
    """Of integers, `lax.div` rounds toward zero and `/` gives floats."""
    return _infix("/")(e, a) if jnp.issubdtype(e.outvars[0].aval.dtype, jnp.inexact) else f"lax.div({a[0]}, {a[1]})"


def _broadcast(e: Equation, a: list[str]) -> str:
    shape, dims = e.params["shape"], e.params["broadcast_dimensions"]
    before = e.invars[0].aval.shape
    if before == ():
        return f"jnp.full({shape}, {a[0]}, {dtype_name(e.outvars[0].aval.dtype)})"
    if tuple(dims) == tuple(range(len(shape) - len(before), len(shape))):
        return f"jnp.broadcast_to({a[0]}, {shape})"
    if all(size == 1 for axis, size in enumerate(shape) if axis not in dims) and before == tuple(
        shape[axis] for axis in dims
    ):
        return f"{wrap(a[0])}.reshape({shape})"
    return f"lax.broadcast_in_dim({a[0]}, {shape}, {literal(tuple(dims))})"


def _convert(e: Equation, a: list[str]) -> str:
    new = e.params["new_dtype"]
    if jnp.issubdtype(e.invars[0].aval.dtype, jnp.complexfloating):
        return f"lax.convert_element_type({a[0]}, {dtype_name(new)})"
    return (
        f"jnp.asarray({a[0]}).astype({dtype_name(new)})"
        if hasattr(e.invars[0], "val")
        else (f"{wrap(a[0])}.astype({dtype_name(new)})")
    )


def _slice(e: Equation, a: list[str]) -> str:
    strides = e.params["strides"] or (1,) * len(e.params["start_indices"])
    parts: list[str] = []
    bounds = zip(e.params["start_indices"], e.params["limit_indices"], strides, e.invars[0].aval.shape, strict=True)
    for start, limit, stride, size in bounds:
        first = str(start) if start else ""
        last = str(limit) if limit != size else ""
        parts.append(f"{first}:{last}" + (f":{stride}" if stride != 1 else ""))
    return f"{wrap(a[0])}[{', '.join(parts)}]"


def _iota(e: Equation, a: list[str]) -> str:
    shape, dtype = e.params["shape"], dtype_name(e.params["dtype"])
    if len(shape) == 1:
        return f"jnp.arange({shape[0]}, dtype={dtype})"
    return f"lax.broadcasted_iota({dtype}, {shape}, {e.params['dimension']})"


def _select(e: Equation, a: list[str]) -> str:
    if len(a) == 3 and e.invars[0].aval.dtype == np.bool_ and e.invars[0].aval.shape == e.outvars[0].aval.shape:
        return f"jnp.where({a[0]}, {a[2]}, {a[1]})"
    return f"lax.select_n({', '.join(a)})"


def _reduction(name: str, plain: str) -> Rule:
    """`jnp` widens small integers and halves, and refuses empty axes where there is no neutral element."""

    def rule(e: Equation, a: list[str]) -> str:
        aval, axes = e.invars[0].aval, e.params["axes"]
        as_jnp = aval.dtype in (np.float32, np.float64) or (aval.dtype == np.bool_ and plain in ("any", "all"))
        if as_jnp and 0 not in aval.shape:
            return f"jnp.{plain}({a[0]}, axis={axes[0] if len(axes) == 1 else tuple(axes)})"
        return f"lax.{name}({a[0]}, {tuple(axes)})"

    return rule


def _dot(e: Equation, a: list[str]) -> str:
    (contracting, batch), precision = e.params["dimension_numbers"], e.params["precision"]
    ranks = [len(v.aval.shape) for v in e.invars]
    kept = f", preferred_element_type={dtype_name(e.params['preferred_element_type'])}"
    options = "" if precision is None else f", precision={literal(_same(precision))}"
    options += kept if e.params["preferred_element_type"] is not None else ""
    lead = tuple(range(ranks[0] - 2))
    is_matmul = (
        ranks[0] == ranks[1] >= 2 and contracting == ((ranks[0] - 1,), (ranks[0] - 2,)) and batch == (lead, lead)
    )
    if is_matmul:
        return f"jnp.matmul({a[0]}, {a[1]}{options})"
    return f"lax.dot_general({a[0]}, {a[1]}, {literal(e.params['dimension_numbers'])}{options})"


def _same(precision: Any) -> Any:
    pair = precision if isinstance(precision, tuple) else (precision, precision)
    return pair[0] if pair[0] == pair[1] else pair


def _conv(e: Equation, a: list[str]) -> str:
    p = dict(e.params)
    if p.get("precision") is not None:
        p["precision"] = _same(p["precision"])
    unset = [n for n, v in p.items() if v is None or (n.endswith("_group_count") and v == 1)]
    unset += [n for n in ("lhs_dilation", "rhs_dilation") if set(p[n]) <= {1}]
    given = _keywords(p, [*unset, "window_strides", "padding"])
    return f"lax.conv_general_dilated({a[0]}, {a[1]}, {literal(p['window_strides'])}, {literal(p['padding'])}{given})"


def _gather(e: Equation, a: list[str]) -> str:
    p = e.params
    shown = _keywords({n: p[n] for n in ("mode", "unique_indices", "indices_are_sorted", "fill_value") if p[n]})
    return f"lax.gather({a[0]}, {a[1]}, {literal(p['dimension_numbers'])}, {literal(p['slice_sizes'])}{shown})"


def _scatter(name: str) -> Rule:
    def rule(e: Equation, a: list[str]) -> str:
        p = e.params
        shown = _keywords({n: p[n] for n in ("indices_are_sorted", "unique_indices", "mode") if p[n]})
        return f"lax.{name}({', '.join(a)}, {literal(p['dimension_numbers'])}{shown})"

    return rule


def _sort(e: Equation, a: list[str]) -> str:
    return f"lax.sort(({', '.join(a)},){_keywords(e.params)})"


def _dynamic_update(e: Equation, a: list[str]) -> str:
    return f"lax.dynamic_update_slice({a[0]}, {a[1]}, ({', '.join(a[2:])},))"


def _random_bits(e: Equation, a: list[str]) -> str:
    return f"jax.random.bits({a[0]}, {e.params['shape']}, jnp.uint{e.params['bit_width']})"


RULES: Final[dict[str, Rule]] = {
    "add": _infix("+"),
    "add_any": _infix("+"),
    "and": _infix("&"),
    "bitcast_convert_type": lambda e, a: f"lax.bitcast_convert_type({a[0]}, {dtype_name(e.params['new_dtype'])})",
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda e, a: f"jnp.concatenate([{', '.join(a)}], axis={e.params['dimension']})",
    "conv_general_dilated": _conv,
    "convert_element_type": _convert,
    "copy": lambda e, a: a[0],
    "cumlogsumexp": _call("lax.cumlogsumexp"),
    "cummax": _call("lax.cummax"),
    "cummin": _call("lax.cummin"),
    "cumprod": _call("lax.cumprod"),
    "cumsum": _call("lax.cumsum"),
    "div": _divide,
    "dot_general": _dot,
    "dynamic_slice": lambda e, a: f"lax.dynamic_slice({a[0]}, ({', '.join(a[1:])},), {e.params['slice_sizes']})",
    "dynamic_update_slice": _dynamic_update,
    "eq": _infix("=="),
    "fft": lambda e, a: f"lax.fft({a[0]}, {e.params['fft_type'].name!r}, {tuple(e.params['fft_lengths'])})",
    "gather": _gather,
    "ge": _infix(">="),
    "gt": _infix(">"),
    "integer_pow": lambda e, a: f"lax.integer_pow({a[0]}, {e.params['y']})",
    "iota": _iota,
    "is_finite": lambda e, a: f"jnp.isfinite({a[0]})",
    "le": _infix("<="),
    "lt": _infix("<"),
    "max": lambda e, a: f"jnp.maximum({a[0]}, {a[1]})",
    "min": lambda e, a: f"jnp.minimum({a[0]}, {a[1]})",
    "mul": _infix("*"),
    "ne": _infix("!="),
    "neg": lambda e, a: f"-{wrap(a[0])}",
    "not": lambda e, a: f"~{wrap(a[0])}",
    "optimization_barrier": lambda e, a: f"lax.optimization_barrier([{', '.join(a)}])",
    "or": _infix("|"),
    "pad": lambda e, a: f"lax.pad({a[0]}, {a[1]}, {literal(e.params['padding_config'])})",
    "random_bits": _random_bits,
    "random_fold_in": lambda e, a: f"jax.random.fold_in({a[0]}, {a[1]})",
    "random_split": lambda e, a: f"jax.random.split({a[0]}, {e.params['shape']})",
    "random_unwrap": lambda e, a: f"jax.random.key_data({a[0]})",
    "random_wrap": lambda e, a: f"jax.random.wrap_key_data({a[0]}, impl={e.params['impl'].name!r})",
    "reduce_and": _reduction("reduce_and", "all"),
    "reduce_max": _reduction("reduce_max", "max"),
    "reduce_min": _reduction("reduce_min", "min"),
    "reduce_or": _reduction("reduce_or", "any"),
    "reduce_prod": _reduction("reduce_prod", "prod"),
    "reduce_sum": _reduction("reduce_sum", "sum"),
    "reshape": lambda e, a: f"{wrap(a[0])}.reshape({e.params['new_sizes']})",
    "rev": lambda e, a: f"lax.rev({a[0]}, {e.params['dimensions']})",
    "round": lambda e, a: f"lax.round({a[0]}, {literal(e.params['rounding_method'])})",
    "scatter": _scatter("scatter"),
    "scatter-add": _scatter("scatter_add"),
    "scatter-max": _scatter("scatter_max"),
    "scatter-min": _scatter("scatter_min"),
    "scatter-mul": _scatter("scatter_mul"),
    "select_n": _select,
    "shift_left": lambda e, a: f"lax.shift_left({a[0]}, {a[1]})",
    "slice": _slice,
    "sort": _sort,
    "split": lambda e, a: f"lax.split({a[0]}, {e.params['sizes']}, {e.params['axis']})",
    "squeeze": lambda e, a: f"lax.squeeze({a[0]}, {e.params['dimensions']})",
    "stack": lambda e, a: f"jnp.stack([{', '.join(a)}], axis={e.params['axis']})",
    "sub": _infix("-"),
    "tile": lambda e, a: f"jnp.tile({a[0]}, {e.params['reps']})",
    "top_k": lambda e, a: f"lax.top_k({a[0]}, {e.params['k']}, axis={e.params['axis']})",
    "transpose": lambda e, a: f"jnp.transpose({a[0]}, {e.params['permutation']})",
    "unstack": lambda e, a: f"jnp.unstack({a[0]}, axis={e.params['axis']})",
    "xor": _infix("^"),
}
"""By the name of the primitive."""

WEAK: Final = frozenset({"add", "sub", "mul", "max", "min", "div", "lt", "le", "gt", "ge", "eq", "ne"})
"""Primitives whose operators give a Python number the dtype of the other operand."""


def expression(e: Equation, arguments: list[str]) -> str:
    """The source of one equation without inner functions.

    Raises:
        UnsupportedOp: a parameter has no source.
    """
    name = e.primitive.name
    if (rule := RULES.get(name)) is not None:
        return rule(e, arguments)
    set_ones = {n: v for n, v in e.params.items() if v is not None}
    if not set_ones and hasattr(lax, name):
        return f"lax.{name}({', '.join(arguments)})"
    if not hasattr(primitives, f"{name}_p"):
        raise UnsupportedOp(f"to_python: jax publishes no primitive {name!r}")
    return f"primitives.{name}_p.bind({', '.join(arguments)}{_keywords(e.params)})"
