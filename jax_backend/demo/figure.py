"""Draws a training run on the digits: learning curves, the confusion matrix, and what was taken for something else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from jax_backend.demo.digits import NUM_CLASSES, Digits, Epoch
from jax_backend.demo.extra import require

RIGHT: Final = "#2166ac"
WRONG: Final = "#d6604d"
INK: Final = "#222222"
FAINT: Final = "#8a8a8a"
NUM_WRONG: Final = 10
"""Wrong guesses that are drawn, the first of the held-out images."""

STYLE: Final = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#bbbbbb",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": FAINT,
    "ytick.color": FAINT,
}


def draw(path: Path, epochs: Sequence[Epoch], test: Digits, caption: str) -> None:
    """Write the picture as a PNG; `caption` stands below the title.

    Raises:
        MissingExtra: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    matplotlib = require("matplotlib")
    figure_type = require("matplotlib.figure").Figure
    last = epochs[-1]
    with matplotlib.rc_context(STYLE):
        figure = figure_type(figsize=(11, 6.6), dpi=130, facecolor="white")
        top = {"left": 0.05, "right": 0.985, "top": 0.83, "bottom": 0.36, "wspace": 0.19}
        grid = figure.add_gridspec(1, 3, width_ratios=(1, 1, 1.02), **top)
        _loss(figure.add_subplot(grid[0]), epochs)
        _accuracy(figure.add_subplot(grid[1]), epochs)
        _confusion(figure.add_subplot(grid[2]), test.labels, last.guesses)
        _wrong(figure, test, last.guesses)
        title = f"{100 * last.accuracy:.1f} % of {len(test.labels)} held-out handwritten digits recognised"
        figure.text(0.022, 0.945, title, fontsize=15, weight="bold")
        figure.text(0.022, 0.908, caption, fontsize=9, color=FAINT)
        figure.savefig(path, metadata={"Software": None})


def _lines(axes: Any, title: str, curves: dict[str, tuple[Sequence[float], str]]) -> None:
    """Curves over epochs, each with its name at its end."""
    axes.set_title(title)
    axes.set_xlabel("epoch")
    axes.set_xlim(0, 1.04 * max(len(values) for values, _ in curves.values()))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)
    for name, (values, color) in curves.items():
        axes.plot(
            range(1, len(values) + 1),
            values,
            color=color,
            label=f"{name}, {values[-1]:.3f} at last",
            linewidth=1.8,
            solid_capstyle="round",
        )
        axes.plot(len(values), values[-1], "o", color=color, markersize=4)


def _loss(axes: Any, epochs: Sequence[Epoch]) -> None:
    learned, tested = [e.loss for e in epochs], [e.test_loss for e in epochs]
    _lines(axes, "Cross entropy", {"training": (learned, FAINT), "held out": (tested, RIGHT)})
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.legend(frameon=False, labelcolor="linecolor", handlelength=1.2, prop={"weight": "bold"})


def _accuracy(axes: Any, epochs: Sequence[Epoch]) -> None:
    values = [100 * e.accuracy for e in epochs]
    _lines(axes, "Held-out images recognised, in %", {"held out": (values, RIGHT)})
    axes.set_ylim(min(90.0, 5 * np.floor(min(values) / 5)), 100)
    place = (len(values), values[-1])
    offset = {"textcoords": "offset points", "ha": "right", "va": "top"}
    axes.annotate(f"{values[-1]:.1f} %", place, (0, -8), color=RIGHT, weight="bold", **offset)


def _confusion(axes: Any, labels: np.ndarray, guesses: np.ndarray) -> None:
    counts = np.zeros((NUM_CLASSES, NUM_CLASSES), int)
    np.add.at(counts, (labels, guesses), 1)
    diagonal = np.eye(NUM_CLASSES, dtype=bool)
    largest = {True: counts.max(), False: max(8, counts[~diagonal].max())}
    for part, colors, top in ((diagonal, "Blues", largest[True]), (~diagonal, "Reds", largest[False])):
        shown = np.ma.masked_where(~part | (counts == 0), counts)
        axes.imshow(shown, cmap=colors, vmin=-0.2 * top, vmax=1.15 * top)
    for row, column in np.argwhere(counts):
        color = "white" if counts[row, column] > 0.5 * largest[bool(row == column)] else INK
        axes.text(column, row, counts[row, column], ha="center", va="center", color=color, fontsize=8)
    axes.set_anchor("NE")
    axes.set_title("Confusion matrix, in images")
    axes.set_xlabel("recognised as")
    axes.set_ylabel("is a")
    axes.set_xticks(range(NUM_CLASSES))
    axes.set_yticks(range(NUM_CLASSES))
    axes.set_xticks(np.arange(NUM_CLASSES - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(NUM_CLASSES - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="#eeeeee")
    axes.tick_params(which="both", length=0)


def _wrong(figure: Any, test: Digits, guesses: np.ndarray) -> None:
    places = np.flatnonzero(guesses != test.labels)
    shown = places[:NUM_WRONG]
    if not len(shown):
        return
    counted = f"all {len(places)}" if len(places) == len(shown) else f"{len(shown)} of {len(places)}"
    figure.text(0.022, 0.235, f"Wrong guesses ({counted})", fontsize=10, weight="bold")
    grid = figure.add_gridspec(1, NUM_WRONG, left=0.022, right=0.985, top=0.21, bottom=0.05, wspace=0.25)
    for column, place in enumerate(shown):
        axes = figure.add_subplot(grid[column])
        axes.imshow(test.images[place].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[["top", "right"]].set_visible(True)
        axes.set_xlabel(f"a {test.labels[place]}, taken for {guesses[place]}", fontsize=8, color=WRONG)
