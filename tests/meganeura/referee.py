"""Ask Meganeura itself: its graph passes, and its sessions on a software Vulkan device.

    with Referee() as referee:
        graph = referee.passes(graph, ["Differentiate"])
        states = referee.run(graph, {"w": w}, [Step({"x": x})])

Requests and answers are described in `referee/src/main.rs`. A graph is msgpack bytes in serde's layout, on both sides.

`python -m tests.meganeura.referee` writes `models/`: the graphs of the crate's own model builders.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import msgspec
import numpy as np

from tests.burn.oracle import Answer, Oracle
from tests.meganeura import crate

DRIVERS: Final = (Path("/usr/share/vulkan/icd.d"), Path("/usr/local/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d"))

Pass: TypeAlias = Literal["Differentiate", "FuseGroupNormSilu", "Optimize", "Toposort"]
INFERENCE: Final[tuple[Pass, ...]] = ("Optimize", "FuseGroupNormSilu")
"""The passes of `build_inference_session`."""
TRAINING: Final[tuple[Pass, ...]] = ("Optimize", "Toposort", "Differentiate", "Optimize")
"""The passes of `build_session`."""

Array: TypeAlias = np.ndarray
Values: TypeAlias = Mapping[str, Array]

_INSTALL: Final = "scripts/install_vulkan installs Mesa 25 on Debian (packages mesa-vulkan-drivers and libvulkan1)"
_CONVOLUTION: Final = msgspec.msgpack.encode(
    {
        "nodes": [
            [0, {"Input": ["x"]}, [], [[1], "F32"]],
            [1, {"Parameter": ["kernel"]}, [], [[1], "F32"]],
            [2, {"Conv2d": [1, 1, 1, 1, 1, 1, 1, 0, 0]}, [0, 1], [[1], "F32"]],
        ],
        "outputs": [2],
        "derived_params": [],
    }
)
"""1 by 1, as rmp-serde writes the records of a graph."""


class RefereeError(RuntimeError):
    """Meganeura refused a request, or cannot run here."""


class Sgd(NamedTuple):
    """Plain gradient descent for one step."""

    rate: float


class Adam(NamedTuple):
    """Adam for one step; the session counts the steps."""

    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


class Step(NamedTuple):
    """A step of a session: the inputs to upload before it (others keep their values), and what to do with gradients."""

    inputs: Values
    optimizer: Sgd | Adam | None = None


class State(NamedTuple):
    """What a session holds after a step: flat arrays of f32."""

    outputs: tuple[Array, ...]
    parameters: dict[str, Array]
    gradients: dict[str, Array]


class Referee:
    """A process with Meganeura 0.2.

    Args:
        barriers: as for `crate.referee`.

    Raises:
        OracleError: cargo is missing or fails.
        RefereeError: there is no software Vulkan driver, or one that garbles what shaders are given.
    """

    def __init__(self, *, barriers: bool = True) -> None:
        environment = {"VK_DRIVER_FILES": str(driver()), "VK_ICD_FILENAMES": str(driver())}
        # llvmpipe reserves address space for each of its threads, so there is no limit that would say anything.
        executable = crate.referee(barriers=barriers)
        self._oracle = Oracle(executable, memory_bytes=64 << 30, timeout_s=240, environment=environment)
        self._probe()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._oracle.close()

    def passes(self, graph: bytes, passes: Sequence[Pass]) -> bytes:
        """The graph after the passes, in order.

        Raises:
            RefereeError: a pass panics; the text is Meganeura's.
        """
        return self._ask({"graph": msgspec.Raw(graph), "passes": passes, "run": None}, "graph")

    def text(self, graph: bytes) -> str:
        """The graph as Rust prints it."""
        return self._ask({"graph": msgspec.Raw(graph), "passes": [], "run": None, "text": True}, "text")

    def run(
        self, graph: bytes, parameters: Values, steps: Sequence[Step], *, passes: Sequence[Pass] = ()
    ) -> list[State]:
        """The state after each step of a new session.

        Args:
            graph: it is compiled as it is after `passes`.
            parameters: what is not named is zero.
            steps: in order.
            passes: applied first.

        Raises:
            RefereeError: a pass, the compilation or the session panics; the text is Meganeura's.
        """
        run = {
            "parameters": _packed(parameters),
            "steps": [{"inputs": _packed(s.inputs), "optimizer": _optimizer(s.optimizer)} for s in steps],
        }
        answers = self._ask({"graph": msgspec.Raw(graph), "passes": passes, "run": run}, "steps")
        return [
            State(
                tuple(_floats(o) for o in answer["outputs"]),
                {name: _floats(value) for name, value in answer["parameters"].items()},
                {name: _floats(value) for name, value in answer["gradients"].items()},
            )
            for answer in answers
        ]

    def _probe(self) -> None:
        """A convolution has 48 bytes of sizes, which the shaders of Mesa 22.3 read as garbage."""
        (state,) = self.run(_CONVOLUTION, {"kernel": np.float32([2])}, [Step({"x": np.float32([3])})])
        if state.outputs[0] != 6:
            raise RefereeError(f"{driver()}: a convolution comes out wrong, as in Mesa 22.3; {_INSTALL}")

    def _ask(self, request: Mapping[str, Any], wanted: str) -> Any:
        (answer,) = self._oracle.run([msgspec.msgpack.encode(request)])
        if wanted not in answer:
            raise RefereeError(_refusal(answer))
        return answer[wanted]


def driver() -> Path:
    """The description of lavapipe, Mesa's software Vulkan driver.

    Raises:
        RefereeError: it is not installed.
    """
    found = [path for folder in DRIVERS for path in sorted(folder.glob("lvp_icd*.json"))]
    if not found:
        folders = ", ".join(map(str, DRIVERS))
        raise RefereeError(f"no lvp_icd*.json in {folders}, but Meganeura runs on a software Vulkan driver; {_INSTALL}")
    return found[0]


def dump(folder: Path) -> None:
    """Let the crate write the graphs of all its models into `folder`."""
    # Each Gelu makes Meganeura's `differentiate` print a line.
    subprocess.run([str(crate.referee()), "dump", str(folder)], check=True, stderr=subprocess.DEVNULL)


def _refusal(answer: Answer) -> str:
    if "panic" in answer:
        return f"{answer['panic']['message']} ({answer['panic']['location']})"
    return str(answer.get("invalid") or answer["abort"])


def _packed(values: Values) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(value).astype(_four_bytes(value)).tobytes() for name, value in values.items()}


def _four_bytes(value: Array) -> str:
    return "<u4" if value.dtype.kind == "u" else "<f4"


def _floats(data: bytes) -> Array:
    return np.frombuffer(data, "<f4")


def _optimizer(optimizer: Sgd | Adam | None) -> Any:
    match optimizer:
        case None:
            return None
        case Sgd(rate):
            return {"Sgd": rate}
        case Adam():
            return {"Adam": list(optimizer)}


if __name__ == "__main__":
    dump(Path(__file__).parent / "models")
