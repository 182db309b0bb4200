"""Where Meganeura 0.2 does something else than what is meant. Each name stands in docs/differences.md."""

from typing import Final, NamedTuple

from ir.meganeura.ops import kinds


class Deviation(NamedTuple):
    """A name, and the kinds whose results or gradients deviate on any data.

    Others deviate in certain graphs or on certain data, and have a test in `test_deviations.py`.
    """

    name: str
    forward: frozenset[str] = frozenset()
    gradient: frozenset[str] = frozenset()
    reproduced: bool = True
    """`compat="0.2"` does the same."""


def _of(*names: str) -> frozenset[str]:
    return frozenset(names)


WITHOUT_GRADIENT: Final = _of("ScatterAdd", "SplitA", "SplitB", *(kind for kind in kinds() if "Grad" in kind))

DEVIATIONS: Final = (
    Deviation("log-softmax", forward=_of("LogSoftmax"), gradient=_of("LogSoftmax")),
    Deviation("rotary-attention", forward=_of("CausalAttentionRoPE")),
    Deviation("rotary-attention-gradient", gradient=_of("CausalAttentionRoPE"), reproduced=False),
    Deviation("forgotten-gradient", gradient=_of("SumAll", "MeanAll", "CrossEntropyLoss", "BceLoss")),
    Deviation("softmax-gradient", gradient=_of("Softmax")),
    Deviation("max-pool-gradient", gradient=_of("MaxPool2d")),
    Deviation("gelu-gradient", gradient=_of("Gelu")),
    Deviation("gradient-that-stops", gradient=WITHOUT_GRADIENT),
    Deviation("labels-that-do-not-sum-to-1"),
    Deviation("bce-at-the-ends"),
    Deviation("abs-at-zero"),
    Deviation("dynamic-offset-gradient"),
    Deviation("relu-of-nan", reproduced=False),
    Deviation("softmax-of-nothing", reproduced=False),
    Deviation("refused-gradient"),
    Deviation("sum-rows-of-a-row", reproduced=False),
    Deviation("convolution-gradient-padding", reproduced=False),
    Deviation("decoding-order", reproduced=False),
    Deviation("dispatch-order", reproduced=False),
    Deviation("square-of-a-silu", reproduced=False),
    Deviation("overwritten-output", reproduced=False),
    Deviation("stale-sources", reproduced=False),
    Deviation("rate-for-one-step"),
    Deviation("head-width", reproduced=False),
    Deviation("missing-barriers", reproduced=False),
)

FORWARD: Final = frozenset[str]().union(*(d.forward for d in DEVIATIONS))
GRADIENT: Final = frozenset[str]().union(*(d.gradient for d in DEVIATIONS))
NOT_REPRODUCED: Final = frozenset[str]().union(*(d.gradient for d in DEVIATIONS if not d.reproduced))

REFUSED: Final = _of("CrossAttention", "GroupNormSilu", "CacheWrite", "CachedAttention")
"""Kinds that Meganeura's `differentiate` refuses."""
