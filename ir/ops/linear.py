"""Linear layers and embeddings. Source: burn-ir `ModuleOperationIr`."""

from ir.op import In, Op, OptIn, Out
from ir.registry import MODULE, kind


@kind(*MODULE)
class Linear(Op):
    """x (.., in) · weight (in, out) + bias (out,) -> out (.., out)."""

    x: In
    weight: In
    bias: OptIn
    out: Out


@kind(*MODULE)
class LinearXBackward(Op):
    """Gradient of `Linear` by x: output_grad (.., out) · weight (in, out) -> out (.., in)."""

    weight: In
    output_grad: In
    out: Out


@kind(*MODULE)
class LinearWeightBackward(Op):
    """Gradient of `Linear` by its weight: x (.., in) · output_grad (.., out) -> out (in, out)."""

    x: In
    output_grad: In
    out: Out


@kind(*MODULE)
class LinearBiasBackward(Op):
    """Gradient of `Linear` by its bias: output_grad (.., out) -> out (out,)."""

    output_grad: In
    out: Out


@kind(*MODULE)
class Embedding(Op):
    """Rows of `weights` (n, d) at `indices` (b, s) -> out (b, s, d)."""

    weights: In
    indices: In
    out: Out


@kind(*MODULE)
class EmbeddingBackward(Op):
    """Gradient of `Embedding` by its weights: out_grad (b, s, d) summed at `indices` (b, s) -> out (n, d)."""

    weights: In
    out_grad: In
    indices: In
    out: Out
