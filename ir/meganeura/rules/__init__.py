"""What the result of a node looks like, and what its inputs must be.

The checks of Meganeura's builder, in its order and with its text, and those that its kernels rely on unsaid. They hold
for every node, whoever made it: the builder, a file, or an optimizer.

Source: meganeura 0.2 `graph.rs`; of the unsaid ones `compile.rs`.
"""

from ir.meganeura.ops.records import kinds
from ir.meganeura.rules import dense, image, sequence
from ir.meganeura.rules.checks import assert_complete, result_type, verify_node

assert_complete(kinds().values())

__all__ = ["dense", "image", "result_type", "sequence", "verify_node"]
