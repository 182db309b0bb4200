"""Sessions of Meganeura graphs: parameters, inputs, runs, training.

    session = Session(graph, gradients="jax")
    session.set_parameter("fc1.weight", weights)     # flat or in its shape; zeros until it is set
    session.set_input("x", batch)                    # stays until it is set again
    session.set_adam(1e-3)
    session.step()
    session.read_loss(), session.read_param("fc1.weight")

Where Meganeura's `Session` does otherwise:

- Names, lengths, and the range of indices and positions are checked here.
- A learning rate stays in force until another is set, and of two optimizers the one set last counts. Meganeura forgets
  the rate after one step, so that a loop that sets it once trains once, and prefers SGD: `compat="0.2"` does that too.
  A loop that sets the rate before every step does the same in all of them.

Promise: a session compiles one executable per way of running (forward, gradients, gradients and SGD, gradients and
Adam) and a run compiles nothing else. Caches and, in training, parameters and moments are donated: no copy is made.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from ir.errors import ShapeError
from ir.meganeura import Compat, Graph
from ir.meganeura.ops import Parameter
from jax_backend.buffers import Buffers
from jax_backend.checkpoint import Checkpoint
from jax_backend.graph_function import UnknownName, listed
from jax_backend.program_store import ProgramStore
from jax_backend.session_programs import SessionPrograms
from jax_backend.training import Adam, Feedback, Gradients, Moments, Optimizer, Rule, Sgd, control_values, plan
from jax_backend.types import Array, Device


class Session:
    """A graph with its buffers on one device.

    Args:
        graph: what runs. Its first output is the loss, where gradients are asked for.
        gradients: None: the graph runs as it is. `"jax"`: jax differentiates it. `"graph"`: `differentiate` adds
            gradient operations, which run. `"given"`: the graph has them; its last outputs are a gradient per
            parameter in node order, as `differentiate` leaves it.
        compat: `"0.2"`: as Meganeura 0.2 does, where that differs from what is meant.
        batch: run this many sets of inputs and caches at once, each along a new first axis; the loss is the mean.
        shared: inputs that are the same for the whole batch.
        feedback: by name of an input, a jax function `(outputs, inputs by name) -> array` that gives what it holds
            after a run. It is a part of the run's program, so that a loop that feeds itself never waits for the host.
        device: by default jax's first.
        precision: of products and convolutions; full f32 by default, where XLA would use TF32 or bf16.
        store: where executables outlive the process (`disk_cache.enable()`).

    Raises:
        StreamError: two leaves have one name, or the outputs do not hold the gradients that `"given"` promises.
        UnknownName: `shared` or `feedback` names no input.
        ShapeError, DTypeError: a function of `feedback` gives another array than its input takes.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        gradients: Gradients = None,
        compat: Compat = None,
        batch: int | None = None,
        shared: Collection[str] = (),
        feedback: Feedback | None = None,
        device: Device | None = None,
        precision: jax.lax.Precision = jax.lax.Precision.HIGHEST,
        store: ProgramStore | None = None,
    ) -> None:
        self.device: Final[Device] = device or jax.devices()[0]
        self._plan: Final = plan(graph, gradients, compat, batch, shared, feedback or {})
        self.programs: Final = SessionPrograms(self._plan, self.device, precision, store)
        made = self._plan
        parameters = (*made.parameters, *made.states, *made.unused_parameters)
        self._parameters: Final = Buffers("parameter", parameters, self.device)
        self._inputs: Final = Buffers("input", (*made.inputs, *made.unused_inputs), self.device)
        self._columns: Final = _columns(graph)
        self._trained: Final = [made.parameters[n] for n in made.trained]
        self._fixed: Final = [leaf for n, leaf in enumerate(made.parameters) if n not in set(made.trained)]
        self._fixed_arrays: tuple[int, list[Array]] = (-1, [])
        self._compat: Final[Compat] = compat
        self._pending: dict[Rule, Optimizer] = {}
        self._multipliers: dict[str, float] = {}
        self._outputs: list[Array] = []
        self._grads: list[Array] = []
        self._moments: Moments | None = None
        self._steps = 0

    def _repr_html_(self) -> str:
        from jax_backend.notebook import session_html

        return session_html(self)

    # ---- what goes in

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name; caches are among them."""
        return {name: leaf.shape for name, leaf in self._parameters.leaves.items()}

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs by name."""
        return {name: leaf.shape for name, leaf in self._inputs.leaves.items()}

    def set_parameter(self, name: str, data: Any) -> None:
        """Fill a parameter or a cache, flat or in its shape. A parameter that is a part of another fills its columns.

        Raises:
            UnknownName: the graph has no such parameter.
            ShapeError: `data` has another size.
        """
        self._parameters.set(name, data, copy=bool(self._trained) or self._parameters.leaf(name) in self._plan.states)
        for derived, columns in self._columns.get(name, ()):
            whole = self._parameters.read(derived)
            whole[:, columns] = self._parameters.read(name)
            self._parameters.set(derived, whole, copy=bool(self._trained))

    def set_input(self, name: str, data: Any) -> None:
        """Fill an input, flat or in its shape: floats, or indices for one of u32. It stays until it is set again.

        A jax array is taken as it is: its indices are not read, and so not checked.

        Raises:
            UnknownName: the graph has no such input.
            ShapeError: `data` has another size, or an index is beyond the table or the cache that it is for.
            DTypeError: floats or negative numbers for indices.
        """
        self._inputs.set(name, data)

    def input(self, name: str) -> Array:
        """What an input holds, on the device: what was set, or what `feedback` made of the last run. Does not wait.

        Raises:
            UnknownName: the graph has no such input.
        """
        return self._inputs.get(name)

    def fill_caches(self, rows: Mapping[str, Any]) -> None:
        """Write the first rows of caches, as a run over a prompt has made them; the rest stays.

        Args:
            rows: (rows, width) by name, with `batch` (batch, rows, width).

        Raises:
            UnknownName: the graph writes no cache of this name.
            ShapeError: there are more rows than the cache has, or they have another width.
        """
        known = {leaf.name: leaf for leaf in self._plan.states}
        if unknown := rows.keys() - known.keys():
            raise UnknownName(f"unknown cache: {listed(unknown)}; the graph has {listed(known)}")
        placed: list[Array] = []
        for name, given in rows.items():
            array = given if isinstance(given, jax.Array) else np.asarray(given, np.float32)
            shape, wanted = array.shape, known[name].shape
            fits = len(shape) == len(wanted) and (*shape[:-2], shape[-1]) == (*wanted[:-2], wanted[-1])
            if not fits or shape[-2] > wanted[-2]:
                raise ShapeError(f"{name}: expected at most {wanted[-2]} rows of {list(wanted)}, got {list(shape)}")
            placed.append(jax.device_put(array, self.device))
        leaves = [known[name] for name in rows]
        self._parameters.replace(leaves, _with_first_rows(self._parameters.arrays(leaves), placed))

    # ---- how it learns

    def set_optimizer(self, optimizer: Optimizer | None) -> None:
        """Update the parameters after every step; None: no more. See the module for how long it holds."""
        if optimizer is None or self._compat is None:
            self._pending.clear()
        if optimizer is not None:
            self._pending["adam" if isinstance(optimizer, Adam) else "sgd"] = optimizer

    def set_learning_rate(self, learning_rate: float) -> None:
        """`set_optimizer(Sgd(learning_rate))`."""
        self.set_optimizer(Sgd(learning_rate))

    def set_adam(self, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        """`set_optimizer(Adam(...))`."""
        self.set_optimizer(Adam(learning_rate, beta1, beta2, epsilon))

    def set_lr_multiplier(self, prefix: str, multiplier: float) -> None:
        """Scale the learning rate of the parameters whose name starts with `prefix`, in `step`; the longest one counts.

        Raises:
            UnknownName: no parameter that learns starts so.
        """
        if not any(leaf.name.startswith(prefix) for leaf in self._trained):
            names = listed(leaf.name for leaf in self._trained)
            raise UnknownName(f"set_lr_multiplier: no parameter that learns starts with {prefix!r}; there are {names}")
        self._multipliers[prefix] = multiplier

    def clear_lr_multipliers(self) -> None:
        """Every parameter learns at the learning rate again."""
        self._multipliers.clear()

    # ---- running

    def step(self) -> None:
        """Run once: outputs, gradients where the session has them, and an update where an optimizer is set.

        Returns before the device is done; what reads waits.
        """
        rule = self._taken()
        trained, fixed = self._parameters.arrays(self._trained), self._unchanged()
        inputs, states = self._inputs.arrays(self._plan.inputs), self._parameters.arrays(self._plan.states)
        self._grads = []  # their memory is for those to come
        if rule is None:
            states, outputs, self._grads = self.programs.run(trained, fixed, inputs, states)
        else:
            name, optimizer = rule
            multipliers = [self._multiplier(leaf.name) for leaf in self._trained]
            control = control_values(optimizer, multipliers, self._steps)
            result = self.programs.learn(name, trained, fixed, inputs, states, self._moments_for(name), control)
            trained, states, moments, outputs, self._grads = result
            self._learned(name, trained, moments)
        self._parameters.replace(self._plan.states, states)
        self._outputs = outputs[: self._plan.num_outputs]
        self._inputs.replace(self._plan.fed, outputs[self._plan.num_outputs :])

    def sgd_step(self, learning_rate: float) -> None:
        """Update the parameters by the gradients of the last run; multipliers do not count.

        Raises:
            UnknownName: no run has made gradients.
        """
        self._update(Sgd(learning_rate))

    def adam_step(self, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        """As `sgd_step`, by Adam."""
        self._update(Adam(learning_rate, beta1, beta2, epsilon))

    def wait(self) -> None:
        """Block until everything that was asked for is done."""
        jax.block_until_ready([self._outputs, self._grads, self._parameters.arrays(self._plan.parameters)])

    def _unchanged(self) -> list[Array]:
        """The parameters that no run changes. Looking each of 272 up costs 20 to 140 us, as much as a small run."""
        if self._fixed_arrays[0] != self._parameters.num_set:
            found = self._parameters.arrays(self._fixed)
            self._fixed_arrays = (self._parameters.num_set, found)
        return self._fixed_arrays[1]

    def _taken(self) -> tuple[Rule, Optimizer] | None:
        """The optimizer of this step; Meganeura 0.2 takes SGD first, and takes it away."""
        order: tuple[Rule, ...] = ("sgd", "adam")
        for rule in order:
            if rule in self._pending and self._trained:
                return rule, self._pending[rule] if self._compat is None else self._pending.pop(rule)
        return None

    def _update(self, optimizer: Optimizer) -> None:
        if not self._grads:
            raise UnknownName("no gradients: expected a step() of a session with gradients before")
        rule: Rule = "adam" if isinstance(optimizer, Adam) else "sgd"
        control = control_values(optimizer, [1.0] * len(self._trained), self._steps)
        trained = self._parameters.arrays(self._trained)
        self._learned(rule, *self.programs.update(rule, trained, self._grads, self._moments_for(rule), control))

    def _learned(self, rule: Rule, trained: list[Array], moments: Moments) -> None:
        self._parameters.replace(self._trained, trained)
        if rule == "adam":
            self._moments = moments
            self._steps += 1

    def _moments_for(self, rule: Rule) -> Moments:
        if rule == "sgd":
            return Moments([], [])
        if self._moments is None:
            first, second = ([jax.device_put(leaf.zeros(), self.device) for leaf in self._trained] for _ in range(2))
            self._moments = Moments(first, second)
        return self._moments

    def _multiplier(self, name: str) -> float:
        fitting = [prefix for prefix in self._multipliers if name.startswith(prefix)]
        return self._multipliers[max(fitting, key=len)] if fitting else 1.0

    # ---- what comes out

    @property
    def num_outputs(self) -> int:
        """Results of the graph, gradients not counted."""
        return self._plan.num_outputs

    def output(self, index: int = 0) -> Array:
        """A result of the last run, on the device; with `batch`, along a new first axis. Does not wait.

        Raises:
            UnknownName: there is no such output, or nothing has run.
        """
        if not 0 <= index < len(self._outputs):
            there = f"{len(self._outputs)} outputs" if self._outputs else "no step() so far"
            raise UnknownName(f"output {index}: expected 0 to {self.num_outputs - 1}; there are {there}")
        return self._outputs[index]

    def read_output(self, index: int = 0) -> np.ndarray:
        """A result of the last run, on the host; waits for it.

        Raises:
            UnknownName: as `output`.
        """
        return np.array(self.output(index))

    def read_loss(self) -> float:
        """The first result as a number, the mean of the batch; waits for it.

        Raises:
            UnknownName: as `output`.
            ShapeError: it has more than one element (per set of inputs).
        """
        loss = self.read_output()
        if loss.shape[-1:] != (1,) or loss.ndim > 2:
            raise ShapeError(f"read_loss: expected a first output of one element, got shape {list(loss.shape)}")
        return float(loss.mean())

    def parameter(self, name: str) -> Array:
        """A parameter or cache, on the device, until a run that changes it. Does not wait.

        Raises:
            UnknownName: the graph has no such parameter.
        """
        return self._parameters.get(name)

    def read_param(self, name: str) -> np.ndarray:
        """A parameter or cache, on the host; waits for it.

        A parameter that nothing reads but as a part of another one is read there, where it learns; Meganeura, and
        `compat="0.2"`, give what it was set to.

        Raises:
            UnknownName: the graph has no such parameter.
        """
        unused = any(leaf.name == name for leaf in self._plan.unused_parameters)
        if name in self._columns and unused and self._compat is None:
            derived, columns = self._columns[name][0]
            return np.array(self._parameters.read(derived)[:, columns])
        return self._parameters.read(name)

    def read_param_grad(self, name: str) -> np.ndarray:
        """The gradient of a parameter in the last run, on the host; waits for it.

        Raises:
            UnknownName: the graph has no such parameter, it has no gradient, or nothing has run.
        """
        self._parameters.leaf(name)
        for leaf, grad in zip(self._trained, self._grads, strict=False):
            if leaf.name == name:
                return np.array(grad)
        raise UnknownName(
            f"no gradient for parameter {name}: {listed(x.name for x in self._trained)} have one, after step()"
        )

    def has_param_grad(self, name: str) -> bool:
        """Whether runs make a gradient of this parameter."""
        return any(leaf.name == name for leaf in self._trained)

    # ---- checkpoints

    def save_checkpoint(self, path: str | Path) -> None:
        """Write parameters and Adam's state as safetensors, with Meganeura's keys (see `checkpoint`)."""
        names = [leaf.name for leaf in self._trained]
        first, second = self._moments or ([], [])
        Checkpoint(
            {name: self.read_param(name) for name in self._parameters.leaves},
            {name: np.array(a) for name, a in zip(names, first, strict=False)},
            {name: np.array(a) for name, a in zip(names, second, strict=False)},
            self._steps,
        ).save(path)

    def load_checkpoint(self, path: str | Path) -> None:
        """Go on where a checkpoint was written: parameters, Adam's state and its steps.

        Raises:
            WireError: the file is no checkpoint.
            UnknownName: it lacks a parameter of the graph, or has one that the graph has not.
            ShapeError: a tensor has another size.
        """
        found = Checkpoint.load(path)
        if missing := self._parameters.leaves.keys() - found.parameters.keys():
            raise UnknownName(f"{path}: expected {listed(missing)}; warm_start takes what there is")
        arrays = {name: self._parameters.leaf(name).conformed(data) for name, data in found.parameters.items()}
        groups = (found.first, found.second)
        moments = Moments(*(self._loaded(path, group) for group in groups)) if any(groups) else None
        for name, data in arrays.items():
            self._parameters.set(name, data)
        self._moments, self._steps = moments, found.steps

    def _loaded(self, path: str | Path, group: Mapping[str, np.ndarray]) -> list[Array]:
        if missing := {leaf.name for leaf in self._trained} - group.keys():
            raise UnknownName(f"{path}: expected Adam's state of {listed(missing)}")
        return [jax.device_put(leaf.conformed(group[leaf.name]), self.device) for leaf in self._trained]

    def warm_start(self, path: str | Path) -> list[str]:
        """Take the parameters that a checkpoint and the graph both have in one size; Adam starts anew.

        Returns:
            The names of the parameters of the graph that keep their values.
        """
        found = Checkpoint.load(path).parameters
        kept: list[str] = []
        for name, leaf in self._parameters.leaves.items():
            if name in found and found[name].size == np.prod(leaf.shape, dtype=int):
                # Meganeura's checkpoints have parts as they were set, and what holds them as it was trained.
                is_newer = any(derived in found for derived, _ in self._columns.get(name, ()))
                (self._parameters.set if is_newer else self.set_parameter)(name, found[name])
            else:
                kept.append(name)
        self._moments, self._steps = None, 0
        return [name for name in kept if not self._parts(name) or any(part in kept for part in self._parts(name))]

    def _parts(self, name: str) -> list[str]:
        """The parameters that stand in this one."""
        return [part for part, places in self._columns.items() if any(whole == name for whole, _ in places)]


def _columns(graph: Graph) -> dict[str, list[tuple[str, slice]]]:
    """By the name of a parameter that stands in others: which ones, and in which of their columns."""
    found: dict[str, list[tuple[str, slice]]] = {}
    there = {op.name for op in graph.ops() if isinstance(op, Parameter)}
    for derived in (d for d in graph.derived_params if d.name in there):
        start = 0
        for source, width in derived.sources:
            found.setdefault(source, []).append((derived.name, slice(start, start + width)))
            start += width
    return found


def _first_rows(caches: list[Array], rows: list[Array]) -> list[Array]:
    return [jax.lax.dynamic_update_slice(c, r, (0,) * c.ndim) for c, r in zip(caches, rows, strict=True)]


_with_first_rows = jax.jit(_first_rows, donate_argnums=0)
