"""The rules of Meganeura 0.2 that differ from what is meant.

| kind | what 0.2 does |
|---|---|
| `SumAll`, `MeanAll`, `CrossEntropyLoss`, `BceLoss` | forget the gradient that comes in |
| `CrossEntropyLoss` | takes each row of labels to sum to 1 |
| `BceLoss` | divides by p (1 - p) at p = 0 and 1 too |
| `Softmax` | sums over the batch where it should over the row |
| `LogSoftmax`, `ScatterAdd`, `SplitA`, `SplitB`, kinds that are gradients | let nothing through |
| `MaxPool2d` | spreads g over stride^2 elements in a row |
| `Gelu` | takes the derivative of x s(1.702 x) |
| `Abs` | has -1 at 0 |
| `RoPE` | forgets a dynamic offset |
| `CrossAttention`, `GroupNormSilu` | are refused |

Source: meganeura 0.2 `autodiff.rs`, node for node.
"""

from typing import Final

from ir.meganeura.autodiff.tape import Tape, gradient, node_of, refuse, share, stop, type_of
from ir.meganeura.ops import attention as attn
from ir.meganeura.ops import conv, elementwise, indexing, norm, reduce
from ir.meganeura.ops.records import Unary
from ir.meganeura.types import Compat, NodeId, TensorType

RELEASE: Final[Compat] = "0.2"

gradient(attn.CrossAttention, norm.GroupNormSilu, compat=RELEASE)(refuse)
gradient(
    reduce.LogSoftmax,
    indexing.ScatterAdd,
    conv.SplitA,
    conv.SplitB,
    attn.MultiHeadAttnGradQ,
    attn.MultiHeadAttnGradK,
    attn.MultiHeadAttnGradV,
    elementwise.SwiGLUGradGate,
    elementwise.SwiGLUGradUp,
    elementwise.SiluGrad,
    elementwise.SwiGLUConcatGrad,
    norm.RmsNormGradW,
    norm.RmsNormGradX,
    norm.LayerNormGradWB,
    norm.LayerNormGradX,
    norm.GroupNormGradInput,
    norm.GroupNormGradWeightBias,
    indexing.RoPEGrad,
    conv.GlobalAvgPoolGrad,
    conv.Conv2dGradInput,
    conv.Conv2dGradWeight,
    conv.Upsample2xGrad,
    compat=RELEASE,
)(stop)


@gradient(reduce.SumAll, compat=RELEASE)
def sum_all(t: Tape, op: Unary, g: NodeId) -> None:
    """1 everywhere."""
    t.give(op.x, t.full(1.0, op.x))


@gradient(reduce.MeanAll, compat=RELEASE)
def mean_all(t: Tape, op: Unary, g: NodeId) -> None:
    """1 / N everywhere."""
    t.give(op.x, t.full(share(type_of(op.x).num_elements()), op.x))


@gradient(reduce.CrossEntropyLoss, compat=RELEASE)
def cross_entropy_loss(t: Tape, op: reduce.CrossEntropyLoss, g: NodeId) -> None:
    """(softmax(logits) - labels) / B."""
    difference = t.minus(t.graph.softmax(node_of(op.logits)), node_of(op.labels))
    t.give(op.logits, t.graph.mul(difference, t.full(share(op.logits.shape.dims[0]), op.logits)))


@gradient(reduce.BceLoss, compat=RELEASE)
def bce_loss(t: Tape, op: reduce.BceLoss, g: NodeId) -> None:
    """(p - y) / (p (1 - p)) / N."""
    p = node_of(op.pred)
    difference = t.minus(p, node_of(op.labels))
    rest = t.minus(t.full(1.0, op.pred), p)
    slope = t.graph.recip(t.graph.mul(p, rest))
    scale = t.full(share(type_of(op.pred).num_elements()), op.pred)
    t.give(op.pred, t.graph.mul(t.graph.mul(difference, slope), scale))


@gradient(reduce.Softmax, compat=RELEASE)
def softmax(t: Tape, op: Unary, g: NodeId) -> None:
    """G y - y sum of g y over the batch."""
    y = node_of(op.out)
    weighed = t.graph.mul(g, y)
    sums = t.graph.sum_rows(weighed, TensorType.f32(op.x.shape.dims[1:]))
    spread = t.graph.bias_add(t.full(0.0, op.x), sums)
    t.give(op.x, t.minus(weighed, t.graph.mul(y, spread)))


@gradient(conv.MaxPool2d, compat=RELEASE)
def max_pool_2d(t: Tape, op: conv.MaxPool2d, g: NodeId) -> None:
    """G as if each element stood for stride^2 in a row."""
    sizes = {"channels": op.channels, "spatial": op.stride * op.stride}
    t.give(op.x, t.graph.append(conv.GlobalAvgPoolGrad, [g], type_of(op.x), **sizes))


@gradient(elementwise.Gelu, compat=RELEASE)
def gelu(t: Tape, op: elementwise.Gelu, g: NodeId) -> None:
    """G s (1 + k x (1 - s)) with s the logistic function of k x, k = 1.702."""
    scaled = t.graph.mul(t.full(1.702, op.x), node_of(op.x))
    s = t.graph.sigmoid(scaled)
    bend = t.graph.mul(scaled, t.minus(t.full(1.0, op.x), s))
    bracket = t.graph.add(t.full(1.0, op.x), bend)
    t.give(op.x, t.graph.mul(g, t.graph.mul(s, bracket)))


@gradient(elementwise.Abs, compat=RELEASE)
def abs_(t: Tape, op: elementwise.Abs, g: NodeId) -> None:
    """G (2 [x > 0] - 1)."""
    positive = t.graph.greater(node_of(op.x), t.full(0.0, op.x))
    doubled = t.graph.mul(positive, t.full(2.0, op.x))
    sign = t.minus(doubled, t.full(1.0, op.x))
    t.give(op.x, t.graph.mul(g, sign))


@gradient(indexing.RoPE, compat=RELEASE)
def rope(t: Tape, op: indexing.RoPE, g: NodeId) -> None:
    """The inverse rotation at the static offset."""
    t.give(op.x, t.graph.rope_grad(g, op.theta, op.pos_offset, op.head_dim))
