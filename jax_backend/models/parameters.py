"""Parameters that a file of weights fills: how a builder declares them, how a session gets them.

Meganeura keeps the matrix of a linear layer as (in, out), Hugging Face as (out, in); it folds batch norms into
convolutions, and has biases of convolutions in full size because its IR adds equal shapes only. A builder says with
each parameter from which tensors it comes and how.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from ir.errors import IrError, ShapeError
from ir.meganeura import Graph
from ir.meganeura.ops import Parameter
from jax_backend.graph_function import listed

if TYPE_CHECKING:
    from jax_backend.meganeura import Session

Tensors: TypeAlias = Mapping[str, np.ndarray]
Load: TypeAlias = Callable[[Tensors], np.ndarray]
"""Makes a parameter of the tensors of a file."""


class MissingWeights(IrError):
    """A file of weights lacks tensors that a model needs."""


class Model(NamedTuple):
    """A graph and, for each of its parameters that a file fills, how."""

    graph: Graph
    loads: Mapping[str, Load]


def plain(name: str) -> Load:
    """The tensor as it is."""
    return lambda tensors: tensors[name]


def transposed(name: str) -> Load:
    """A matrix (out, in) as (in, out)."""
    return lambda tensors: tensors[name].T


def flat(name: str) -> Load:
    """A kernel, as the IR has it: all axes in one."""
    return lambda tensors: np.ravel(tensors[name])


def first_rows(name: str, count: int) -> Load:
    """The first `count` rows, such as the positions that a shorter sequence has.

    Raises:
        ShapeError: when it is loaded: the tensor has fewer.
    """

    def load(tensors: Tensors) -> np.ndarray:
        if len(tensors[name]) < count:
            raise ShapeError(f"{name}: expected at least {count} rows, got {len(tensors[name])}; build a shorter model")
        return tensors[name][:count]

    return load


def per_channel(name: str, batch: int, size: int) -> Load:
    """A bias (channels,) in full size: (batch, channels, size), flat."""
    return lambda tensors: _spread(tensors[name], batch, size)


class BatchNorm(NamedTuple):
    """A batch norm at inference: a scale and a shift per channel.

    W gamma / sqrt(var + eps) and beta - mean gamma / sqrt(var + eps), so that the convolution before it absorbs it.
    """

    name: str
    eps: float = 1e-5

    def _scale(self, tensors: Tensors) -> np.ndarray:
        variance = tensors[f"{self.name}.running_var"].astype(np.float64)
        return tensors[f"{self.name}.weight"] / np.sqrt(variance + self.eps)

    def kernel(self, conv: str) -> Load:
        """The kernel (out, in, h, w) of the convolution before it, scaled per output channel, flat."""
        return lambda tensors: np.ravel(tensors[conv] * self._scale(tensors).reshape(-1, 1, 1, 1))

    def bias(self, batch: int, size: int) -> Load:
        """The shift in full size: (batch, channels, size), flat."""

        def load(tensors: Tensors) -> np.ndarray:
            mean = tensors[f"{self.name}.running_mean"]
            return _spread(tensors[f"{self.name}.bias"] - mean * self._scale(tensors), batch, size)

        return load


def _spread(channels: np.ndarray, batch: int, size: int) -> np.ndarray:
    return np.tile(np.repeat(channels, size), batch)


class Parameters:
    """Declares parameters on a graph and remembers how each is loaded."""

    def __init__(self, graph: Graph) -> None:
        self.graph: Final = graph
        self.loads: Final[dict[str, Load]] = {}

    def declare(self, name: str, shape: tuple[int, ...], load: Load | None = None) -> int:
        """A parameter; by default the tensor of that name, as it is."""
        self.loads[name] = load or plain(name)
        return self.graph.parameter(name, shape)

    def matrix(self, name: str, size_in: int, size_out: int) -> int:
        """The matrix `name` of a linear layer, (in, out) here and (out, in) in the file."""
        return self.declare(name, (size_in, size_out), transposed(name))

    def linear(self, x: int, name: str, size_in: int, size_out: int, *, bias: bool = True) -> int:
        """A linear layer: x (rows, in) `name`.weight + `name`.bias -> (rows, out)."""
        weight = self.matrix(f"{name}.weight", size_in, size_out)
        if not bias:
            return self.graph.matmul(x, weight)
        shift = self.declare(f"{name}.bias", (size_out,))
        return self.graph.bias_add(self.graph.matmul(x, weight), shift)

    def layer_norm(self, x: int, name: str, size: int, eps: float) -> int:
        """Layer norm of x (rows, size) with `name`.weight and `name`.bias."""
        weight, bias = self.declare(f"{name}.weight", (size,)), self.declare(f"{name}.bias", (size,))
        return self.graph.layer_norm(x, weight, bias, eps)

    def rms_norm(self, x: int, name: str, size: int, eps: float) -> int:
        """RMS norm of x (rows, size) with `name`.weight."""
        return self.graph.rms_norm(x, self.declare(f"{name}.weight", (size,)), eps)

    def finish(self, *outputs: int) -> Model:
        """The model with these outputs."""
        self.graph.set_outputs(outputs)
        return Model(self.graph, self.loads)


class Weights(Mapping[str, np.ndarray]):
    """The tensors of a safetensors file, or of the several that an index beside them lists; each read when asked for.

    Floats of 16 bits become float32. `prefix` is put before every name that is asked for.

    Raises:
        FileNotFoundError: there is no such file, or no `model.safetensors` or index of one in the folder.
    """

    def __init__(self, path: str | Path, prefix: str = "") -> None:
        self._prefix = prefix
        self._files: dict[str, Path] = {}
        for file in _files(Path(path)):
            self._files.update(dict.fromkeys(header(file), file))

    def __getitem__(self, name: str) -> np.ndarray:
        from safetensors import safe_open

        full = self._prefix + name
        with safe_open(self._files[full], "np") as file:
            found = file.get_tensor(full)
        halves = found.dtype in (np.float16, ml_dtypes.bfloat16)
        return found.astype(np.float32) if halves else found

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._files if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def header(file: Path) -> tuple[str, ...]:
    """The names in one safetensors file."""
    from safetensors import safe_open

    with safe_open(file, "np") as opened:
        return tuple(opened.keys())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    index = path / "model.safetensors.index.json"
    if not index.exists():
        return [path / "model.safetensors"]
    return [path / name for name in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))]


def load_weights(session: "Session", model: Model, tensors: Tensors) -> None:
    """Set every parameter of `model` from tensors with the names of Hugging Face (see `Weights`).

    Raises:
        MissingWeights: a tensor is not there; names what is missing.
        ShapeError: a tensor has another size than its parameter.
    """
    missing: list[str] = []
    for name, load in model.loads.items():
        try:
            session.set_parameter(name, load(tensors))
        except KeyError as error:
            missing.append(str(error.args[0]))
    if missing:
        raise MissingWeights(
            f"weights: expected {listed(missing)}; there are {listed(tensors)}; a prefix may be missing"
        )


def num_values(model: Model) -> int:
    """How many numbers the parameters that a file fills hold."""
    shapes = {op.name: op.out.shape.dims for op in model.graph.ops() if isinstance(op, Parameter)}
    return sum(prod(shapes[name]) for name in model.loads)
