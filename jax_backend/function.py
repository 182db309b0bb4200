"""Functions of named arrays, and what JAX makes of them: a recorded program, its gradient, its batched form.

A `Function` takes its inputs by position or by name, and its parameters (the recorded scalars, slice starts and the
random seed) by name; what has a recorded value may be left out. Each transform gives another `Function`, so that they
stack: `program.grad().vmap(0, size=8).compile()`.

Promise: pure; the result depends on the arguments only, and no global switch of jax is touched.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer  # pyright: ignore[reportAttributeAccessIssue]
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ir.errors import DTypeError, ShapeError, StreamError
from jax_backend.compiled import Compiled, Cost
from jax_backend.optimize_report import OptimizeReport
from jax_backend.optimize_report import report as optimized
from jax_backend.source import identifier, module_source
from jax_backend.source_rules import literal
from jax_backend.types import Array, Device
from jax_backend.values import SEED, Arguments, Results, Value, Without, advanced, conformed, sole, with_axis

Body: TypeAlias = Callable[[dict[str, Any]], Results]
Axes: TypeAlias = "int | Mapping[str, int]"
Specs: TypeAlias = Mapping[str, PartitionSpec]

_WIDE: Final = re.compile(r":(?:[iuf]64|c128)\[")
PLATFORMS: Final = ("cpu", "cuda", "tpu")


@dataclass(frozen=True)
class Form:
    """How a function is presented and placed.

    `present` makes what a call returns of the named results; `draws` is how many random keys a call takes.
    """

    name: str = "program"
    present: Callable[[Results], Any] = lambda results: sole(tuple(results.values()))
    draws: int = 0
    jit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    labels: Mapping[int, str] = field(default_factory=dict[int, str])
    """Operations as text, by their place."""


class Function:
    """A pure function from named arrays to named arrays.

    Args:
        body: the function itself, on a dict of all arguments; traceable.
        values: its arguments: inputs, then parameters.
        defaults: recorded values by name; what is missing has to be given.
        form: how it is presented.
    """

    def __init__(self, body: Body, values: Sequence[Value], defaults: Arguments, form: Form | None = None) -> None:
        # jax sorts the names of a plain dict.
        self._body: Final[Body] = lambda arguments: OrderedDict(body(arguments))
        self._values: Final = {value.name: value for value in values}
        self._defaults: Final = defaults
        self._form: Final = form or Form()

    # ---- what it is

    @property
    def name(self) -> str:
        """What reports call it."""
        return self._form.name

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensors that come in, in the order of a call's positional arguments."""
        return tuple(v for v in self._values.values() if v.role == "tensor")

    @property
    def parameters(self) -> tuple[Value, ...]:
        """Recorded scalars, slice starts and the seed: arguments by name alone."""
        return tuple(v for v in self._values.values() if v.role != "tensor")

    @cached_property
    def outputs(self) -> tuple[Value, ...]:
        """What comes out."""
        with jax.enable_x64(True):
            shapes = jax.eval_shape(self._body, self._avals())
        return tuple(Value(name, aval.shape, aval.dtype, "result") for name, aval in shapes.items())

    @property
    def defaults(self) -> Arguments:
        """The recorded values, by name."""
        return self._defaults

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, values)) for values in (self.inputs, self.outputs))
        return f"<{type(self).__name__} {self.name}: ({inputs}) -> ({outputs})>"

    def _repr_html_(self) -> str:
        from jax_backend.notebook import function_html

        return function_html(self)

    # ---- running

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The results: one array, or a tuple of them.

        Args:
            inputs: arrays of the shapes and dtypes of `inputs`, in order; Python numbers and lists are converted.
            named: inputs and parameters by name. What is left out has its recorded value.

        Raises:
            ShapeError, DTypeError: an argument is not what `inputs` or `parameters` say.
            TypeError: an argument is unknown, given twice, or missing and was not recorded.
            OperationError: an operation failed while it was traced.
        """
        return self._form.present(self.run(*inputs, **named))

    def run(self, *inputs: Any, **named: Any) -> Results:
        """The results by name; arguments and errors as in a call."""
        is_on = bool(jax.config.read("jax_enable_x64"))
        with jax.enable_x64(True):
            arguments = self._moving(self.bind(*inputs, **named))
            is_traced = any(isinstance(a, Tracer) for a in arguments.values())
            return self._scoped(arguments) if is_traced and not is_on and self._is_wide else self._jitted(arguments)

    def _moving(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """`arguments` without the slice starts that have their recorded values: these are constants of the code."""
        return {n: a for n, a in arguments.items() if not self._is_fixed(n) or a is not self._defaults[n]}

    def _is_fixed(self, name: str) -> bool:
        return self._values[name].role == "start" and name in self._defaults

    def bind(self, *inputs: Any, **named: Any) -> dict[str, Any]:
        """Every argument by name, those that are not given with their recorded values.

        Raises:
            ShapeError, DTypeError, TypeError: as in a call.
        """
        order = [value.name for value in self.inputs]
        if len(inputs) > len(order):
            raise TypeError(f"{self.name}: expected at most {len(order)} inputs, got {len(inputs)}")
        given = dict(zip(order, inputs, strict=False))
        if twice := given.keys() & named.keys():
            raise TypeError(f"{self.name}: {', '.join(sorted(twice))} given twice")
        given.update(named)
        if unknown := given.keys() - self._values.keys():
            raise TypeError(
                f"{self.name}: has no argument {', '.join(sorted(unknown))}; it has {', '.join(self._values)}"
            )
        return {name: self._argument(value, given) for name, value in self._values.items()}

    def _argument(self, value: Value, given: Arguments) -> Any:
        if value.name in given:
            return conformed(f"{self.name}.{value.name}", value, given[value.name])
        if value.name not in self._defaults:
            raise TypeError(f"{self.name}: {value} has no recorded value; give it by position or by name")
        return self._defaults[value.name]

    @cached_property
    def _jitted(self) -> Callable[[dict[str, Any]], Results]:
        return jax.jit(self._body, **self._form.jit)

    @cached_property
    def _is_wide(self) -> bool:
        """It computes with 64-bit types somewhere."""
        return _WIDE.search(str(self.jaxpr())) is not None

    @cached_property
    def _scoped(self) -> Callable[[dict[str, Any]], Results]:
        """The function for transforms of a caller without 64-bit types: its backward pass has them all the same.

        JAX transposes outside of the scope in which it traced. Forward differentiation raises there.
        """

        def backward(arguments: dict[str, Any], cotangents: Results) -> tuple[dict[str, Any]]:
            with jax.enable_x64(True):
                return jax.vjp(self._jitted, arguments)[1](cotangents)

        function = jax.custom_vjp(self._jitted)
        function.defvjp(lambda arguments: (self._jitted(arguments), arguments), backward)
        return function

    def _avals(
        self, sharding: jax.sharding.Sharding | None = None, moving: Sequence[str] = ()
    ) -> dict[str, jax.ShapeDtypeStruct]:
        self._check_names("moving", moving, self._values)
        chosen = {n: v for n, v in self._values.items() if n in moving or not self._is_fixed(n)}
        return {name: value.aval(sharding) for name, value in chosen.items()}

    # ---- transforms

    def value_and_grad(
        self, loss: "str | Callable[..., Any] | None" = None, wrt: "str | Sequence[str] | None" = None
    ) -> "Function":
        """The function that gives a loss and its gradients.

        Args:
            loss: the output that is differentiated, of one element; or a function of the outputs that gives one. By
                default the only output.
            wrt: inputs or float parameters to differentiate by; by default all float inputs.

        Returns:
            A function that gives `(loss, gradient)` where `wrt` is one name, `(loss, {name: gradient})` otherwise;
            its results are named `loss` and `d_<name>`.

        Raises:
            DTypeError: `wrt` names something that is no float.
            ShapeError: the loss has more than one element.
        """
        names = self._differentiable(wrt)

        def body(arguments: dict[str, Any]) -> Results:
            def objective(chosen: dict[str, Any]) -> Array:
                return self._scalar(self._body(arguments | chosen), loss)

            value, grads = jax.value_and_grad(objective)({name: arguments[name] for name in names})
            return {"loss": value} | {f"d_{name}": grads[name] for name in names}

        def present(results: Results) -> Any:
            grads = {name: results[f"d_{name}"] for name in names}
            return results["loss"], grads[wrt] if isinstance(wrt, str) else grads

        return self._derived(f"value_and_grad({self.name})", body, present)

    def grad(
        self, loss: "str | Callable[..., Any] | None" = None, wrt: "str | Sequence[str] | None" = None
    ) -> "Function":
        """As `value_and_grad`, without the loss."""
        both = self.value_and_grad(loss, wrt)

        def body(arguments: dict[str, Any]) -> Results:
            return {name: array for name, array in both._body(arguments).items() if name != "loss"}

        def present(results: Results) -> Any:
            return both._form.present({"loss": jnp.float32(0)} | results)[1]

        return self._derived(f"grad({self.name})", body, present)

    def vmap(self, axis: Axes = 0, *, size: int) -> "Function":
        """The function on `size` sets of inputs at once; each output gets the batch as its first axis.

        Args:
            axis: where the batch is, by name; a number means every input that has no recorded value, or every input
                if each has one. Others, and parameters that are not named, are the same for the whole batch.
            size: of the batch.

        Raises:
            TypeError: `axis` names no argument.
        """
        axes = self._batched(axis)
        values = [v if v.name not in axes else with_axis(v, axes[v.name], size) for v in self._values.values()]

        def body(arguments: dict[str, Any]) -> Results:
            in_axes = {name: axes.get(name) for name in arguments}
            return jax.vmap(self._body, in_axes=(in_axes,), axis_size=size)(arguments)

        return self._derived(f"vmap({self.name})", body, self._form.present, values, axes)

    def scan(self, n: int, carry: Mapping[str, str], *, over: Sequence[str] = ()) -> "Function":
        """The function applied `n` times inside one executable.

        Args:
            n: how often.
            carry: input -> output that takes its place in the next step.
            over: arguments that differ from step to step: they get a first axis of `n`.

        Returns:
            A function with the same outputs: those of `carry` after the last step, the others of all steps along a
            new first axis. Random numbers go on from step to step.

        Raises:
            TypeError: a name is unknown.
            ShapeError, DTypeError: an output cannot take the place of the input.
        """
        self._check_carry(carry, over)
        draws = np.uint32(self._form.draws)

        def body(arguments: dict[str, Any]) -> Results:
            def step(state: dict[str, Any], now: dict[str, Any]) -> tuple[dict[str, Any], Results]:
                results = self._body(fixed | state | now)
                following = {name: results[out] for name, out in carry.items()}
                if moves_seed:
                    following[SEED] = advanced(state[SEED], draws)
                return following, {name: a for name, a in results.items() if name not in carry.values()}

            moves_seed = SEED in arguments and SEED not in over
            carried = {name: jnp.asarray(arguments[name]) for name in (*carry, *([SEED] if moves_seed else []))}
            varying = {name: arguments[name] for name in over}
            fixed = {name: a for name, a in arguments.items() if name not in carried and name not in varying}
            final, stacked = jax.lax.scan(step, carried, varying, length=n)
            return {v.name: stacked[v.name] if v.name in stacked else final[source[v.name]] for v in self.outputs}

        source = {out: name for name, out in carry.items()}
        values = [v if v.name not in over else with_axis(v, 0, n) for v in self._values.values()]
        return self._derived(f"scan({self.name}, {n})", body, self._form.present, values, over)

    def shard(self, mesh: Mesh, specs: Specs, *, out_specs: Specs | None = None) -> "Function":
        """The function spread over the devices of `mesh`; XLA adds the communication. It is the last transform.

        Args:
            mesh: the devices and the names of their axes.
            specs: how arguments are laid out, by name; all others are whole on each device.
            out_specs: how results are laid out, by name, others whole; by default as XLA chooses.

        Raises:
            TypeError: a spec names no argument or no output.
        """
        self._check_names("specs", specs, self._values)
        automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
        placed = {name: _placed(automatic, specs, name) for name in self._avals()}
        jit: dict[str, Any] = {"in_shardings": (placed,)}
        if out_specs is not None:
            names = [value.name for value in self.outputs]
            self._check_names("out_specs", out_specs, names)
            jit["out_shardings"] = OrderedDict((name, _placed(automatic, out_specs, name)) for name in names)
        form = replace(self._form, name=f"shard({self.name})", jit=jit)
        return Function(self._body, list(self._values.values()), self._defaults, form)

    def _derived(
        self,
        name: str,
        body: Body,
        present: Callable[[Results], Any],
        values: Sequence[Value] | None = None,
        required: "Sequence[str] | Mapping[str, int]" = (),
    ) -> "Function":
        """Another function of these arguments, in which those of `required` lose their recorded values."""
        if self._form.jit:
            raise StreamError(f"{name}: {self.name} is spread over devices; shard comes last")
        defaults = Without(self._defaults, frozenset(required))
        return Function(
            body, values or list(self._values.values()), defaults, replace(self._form, name=name, present=present)
        )

    def _differentiable(self, wrt: "str | Sequence[str] | None") -> list[str]:
        if wrt is None:
            names = [v.name for v in self.inputs if jnp.issubdtype(v.dtype, jnp.floating)]
            if not names:
                raise DTypeError(f"{self.name}.wrt: expected an input of floats, got none: {self.inputs}")
            return names
        names = [wrt] if isinstance(wrt, str) else list(wrt)
        self._check_names("wrt", names, self._values)
        for name in names:
            if not jnp.issubdtype(self._values[name].dtype, jnp.floating):
                raise DTypeError(f"{self.name}.wrt: expected floats to differentiate by, got {self._values[name]}")
        return names

    def _scalar(self, results: Results, loss: "str | Callable[..., Any] | None") -> Array:
        if callable(loss):
            chosen: Any = loss(*results.values())
        else:
            if loss is None and len(results) != 1:
                raise TypeError(f"{self.name}.loss: expected one of {', '.join(results)}, or a function of them")
            self._check_names("loss", [loss] if loss else [], results)
            chosen = results[loss] if loss else next(iter(results.values()))
        if jnp.size(chosen) != 1:
            raise ShapeError(f"{self.name}.loss: expected one element, got {jnp.shape(chosen)}; sum it, or take a mean")
        return jnp.reshape(chosen, ())

    def _batched(self, axis: Axes) -> dict[str, int]:
        if isinstance(axis, Mapping):
            self._check_names("axis", axis, self._values)
            return dict(axis)
        open_inputs = [v.name for v in self.inputs if v.name not in self._defaults]
        return dict.fromkeys(open_inputs or [v.name for v in self.inputs], axis)

    def _check_carry(self, carry: Mapping[str, str], over: Sequence[str]) -> None:
        results = {value.name: value for value in self.outputs}
        self._check_names("carry", carry, self._values)
        self._check_names("carry", carry.values(), results)
        self._check_names("over", over, self._values)
        for name, out in carry.items():
            before, after = self._values[name], results[out]
            if before.shape != after.shape:
                raise ShapeError(f"{self.name}.carry: expected an output like {before}, got {after}")
            if before.dtype != after.dtype:
                raise DTypeError(f"{self.name}.carry: expected an output like {before}, got {after}")

    def _check_names(self, where: str, names: Any, known: Any) -> None:
        if unknown := [name for name in names if name not in known]:
            raise TypeError(f"{self.name}.{where}: expected some of {', '.join(known)}, got {', '.join(unknown)}")

    # ---- what XLA makes of it

    def compile(self, device: Device | None = None, *, moving: Sequence[str] = ()) -> Compiled:
        """The function compiled ahead of time.

        Args:
            device: by default jax's first; a sharded function is compiled for its mesh.
            moving: slice starts that calls may give; the others are built in.
        """
        placed = None if self._form.jit else jax.sharding.SingleDeviceSharding(device or jax.devices()[0])
        with jax.enable_x64(True):
            jitted = jax.jit(self._body, keep_unused=True, **self._form.jit)
            lowered = jitted.lower(self._avals(placed, moving))
            return Compiled(self, lowered.compile(), frozenset(moving), placed)

    def cost(self, device: Device | None = None) -> Cost:
        """Operations, bytes and memory of one call on `device`, as XLA counts them."""
        return self.compile(device).cost()

    def optimize_report(self, device: Device | None = None) -> OptimizeReport:
        """What XLA makes of the recorded operations on `device`; printed, it is a page of text."""
        return optimized(self.name, self._form.labels, self.stablehlo(), self.compile(device))

    def stablehlo(self) -> str:
        """The function as StableHLO text: what jax hands to XLA."""
        with jax.enable_x64(True):
            return jax.jit(self._body, **self._form.jit).lower(self._avals()).as_text()

    def jaxpr(self) -> Any:
        """The function as a closed jaxpr; its arguments are all values by name, in the order of their names."""
        with jax.enable_x64(True):
            return jax.make_jaxpr(self._body)(self._avals())

    def to_python(self) -> str:
        """The function as the source of a module that needs jax alone, with a function of the same name.

        It takes the inputs, then the parameters, which have their recorded values as defaults (slice starts are built
        in), and returns the results of `outputs`, a tuple where there are several.

            scope = {}
            exec(program.to_python(), scope)
            scope["program"](x, w)

        Raises:
            UnsupportedOp: something in it has no source, such as a callback of a custom operation.
        """
        fixed = {
            v.name: literal(np.asarray(self._defaults[v.name])) for v in self.parameters if v.name in self._defaults
        }
        arguments = {name: fixed.get(name, "") for name in self._avals()}
        name = identifier(self.name)
        return module_source(name, self.jaxpr(), arguments, list(map(str, self.outputs)), self._form.labels)

    def export(
        self, path: "str | Path", platforms: Sequence[str] = PLATFORMS, *, keep: Sequence[str] = ()
    ) -> jax.export.Exported:
        """Write the function to a file that a process with jax alone runs.

            from jax import export
            f = export.deserialize(open(path, "rb").read())
            f.call(x, y)          # the inputs without recorded values, in order; those of `keep` by name

        Args:
            path: of the file.
            platforms: what it is to run on: some of `cpu`, `cuda`, `tpu`, `rocm`.
            keep: parameters, and inputs with recorded values, that stay arguments; the others are built in.

        Returns:
            What was written.

        Raises:
            TypeError: `keep` names no argument.
        """
        self._check_names("keep", keep, self._values)
        free = [v for v in self.inputs if v.name not in self._defaults and v.name not in keep]
        kept = [self._values[name] for name in keep]
        fixed = {n: self._defaults[n] for n in self._values if n in self._defaults and n not in keep}

        def function(*inputs: Any, **named: Any) -> Any:
            given = dict(zip([v.name for v in free], inputs, strict=True))
            return self._form.present(self._body(fixed | given | named))

        with jax.enable_x64(True):
            exporter = jax.export.export(jax.jit(function), platforms=tuple(platforms))
            exported = exporter(*[v.aval() for v in free], **{v.name: v.aval() for v in kept})
        Path(path).write_bytes(exported.serialize())
        return exported


def _placed(mesh: Mesh, specs: Specs, name: str) -> NamedSharding:
    return NamedSharding(mesh, specs.get(name, PartitionSpec()))
