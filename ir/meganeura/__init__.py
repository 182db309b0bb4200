"""Meganeura's graph IR: its 75 kinds, its graphs, and the programs they become.

A node of Meganeura is `{id, op, inputs, ty}`. Here it is one `Op` record, as Burn's operations are: its operands are
`TensorIr` whose id is the id of the node that makes them, in the order of `inputs`; `out` is the node itself with its
type; the attributes are fields without a role, named and ordered as in `graph.rs`. So `Conv2d(x, kernel, out,
in_channels, ...)` holds all four parts, and `Node` is a view of it. The kinds share the base with Burn's and nothing
else: 17 names occur in both, and Gelu, Conv2d and Embedding mean other things.

The serialized form is that of serde for the Rust types: `MatMul(a=t0, b=t1, out=t2 f32[4,128])` is
`{"id": 2, "op": "MatMul", "inputs": [0, 1], "ty": {"shape": [4, 128], "dtype": "F32"}}`, the op of an `RmsNorm` is
`{"RmsNorm": {"eps": 1e-5}}`, a graph `{"nodes": [...], "outputs": [2], "derived_params": [...]}`.

Where a record differs from its node:

- `RoPE.offset` is optional: the node has one input or two.
- `Constant.data` is bytes: little-endian f32, one element where all are equal (`is_uniform`).
- `fwd_node` of `MultiHeadAttnGradQ`, `K` and `V` is an operand: a lowering gets the forward output O after grad_out, q,
  k and v, and renumbering and dead-code rules see the edge. `window` is not serialized: it is the mask of the forward
  attention (None: all rows; n: rows max(0, i + 1 - n) to i), looked up at that node.
- `Parameter`, `Input` and `Nop` have no lowering: a program binds the first two as its inputs and drops the third.

What to use:

- `Graph`: builder, `nodes()`, `outputs()`, `toposort()`, `str(graph)`; `to_json`, `from_json`, `to_msgpack`,
  `from_msgpack`. Node ids are plain ints.
- `add_raw_node(kind, inputs, ty, **attributes)`: `graph.add_raw_node(RoPEGrad, [g], ty, theta=1e4, pos_offset=0,
  head_dim=64)`.
- `program(graph, compat=None) -> GraphProgram`: the live nodes as pure operations in id order (`ops`), the leaves they
  read (`leaves`: `Parameter` and `Input` records in id order), the tensor ids of the results (`outputs`), and the pairs
  (id of a leaf, id of its new value) of the leaves that `CacheWrite` changes (`states`). Reads of a cache after a write
  get the written value, so a lowering of `CacheWrite` just returns the new cache. Every output and new value is made by
  an operation. `relative()` is the same as a `RelativeGraph` with the leaves as inputs and outputs, then new values, as
  outputs; `SymbolTable.entry` of the operations gives the symbols and the key of the program cache.
- `compat="0.2"` of `program` puts the kinds that Meganeura 0.2 runs in place of `LogSoftmax` (`Softmax`) and
  `CausalAttentionRoPE` (`CausalAttention`), so that a lowering has one meaning, the intended one.
- `differentiate(graph, compat=None) -> Graph`: gradient kinds in the graph, outputs as Meganeura orders them.
- `optimize(graph, compat=None) -> Graph`: Meganeura's fusions, for graphs that are to look as Meganeura runs them.

Source: meganeura 0.2 `graph.rs`, `autodiff.rs`, `optimize.rs`.
"""

from ir.meganeura.autodiff import differentiate
from ir.meganeura.graph import Graph
from ir.meganeura.node import Node
from ir.meganeura.ops import kinds
from ir.meganeura.optimize import OptimizeReport, fuse_group_norm_silu, optimize, optimize_with_report
from ir.meganeura.program import GraphProgram, program
from ir.meganeura.types import Compat, DerivedParam, DType, NodeId, TensorType

__all__ = [
    "Compat",
    "DType",
    "DerivedParam",
    "Graph",
    "GraphProgram",
    "Node",
    "NodeId",
    "OptimizeReport",
    "TensorType",
    "differentiate",
    "fuse_group_norm_silu",
    "kinds",
    "optimize",
    "optimize_with_report",
    "program",
]
