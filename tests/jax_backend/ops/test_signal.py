"""What the CTC loss means for what comes before it."""

import jax
import jax.numpy as jnp
import numpy as np

import ir
from jax_backend.lowering import lowering_of
from tests.cases.signal import CTC
from tests.opcase import OpCase

LENGTHS: OpCase = next(row for row in CTC if row.id == "ctc-input-lengths")


def test_backward_is_the_derivative_by_the_logits() -> None:
    """Burn's gradient holds that of a log-softmax before the loss: autodiff through both gives the same."""
    log_probs, *rest = (jnp.asarray(x.array) for x in LENGTHS.inputs)
    grad = jnp.asarray([0.5, -2.0, 3.0], jnp.float32)
    forward, described = LENGTHS.op, [*LENGTHS.op.inputs, ir.tensor(8, (3,), ir.F32), ir.tensor(9, (5, 3, 4), ir.F32)]
    backward = ir.CtcLossBackward(*described[:5], 0, described[5])

    def loss(logits: jax.Array) -> jax.Array:
        return lowering_of(ir.CtcLoss)(forward, jax.nn.log_softmax(logits), *rest)

    _, adjoint = jax.vjp(loss, log_probs + 1.5)
    (expected,) = adjoint(grad)
    np.testing.assert_allclose(lowering_of(ir.CtcLossBackward)(backward, log_probs, *rest, grad), expected, atol=1e-6)


def test_gradient_of_an_unreachable_target_is_finite() -> None:
    """Impossible states are infinities inside; none of them may turn the gradient of a finite sample into NaN."""
    log_probs = jnp.log(jnp.full((2, 1, 3), 1 / 3, jnp.float32)).at[0, 0, 2].set(-jnp.inf)
    tensors = [ir.tensor(n, dims, d) for n, (dims, d) in enumerate([((2, 1, 3), ir.F32), ((1, 1), ir.I64)])]
    tensors += [ir.tensor(2, (1,), ir.I64), ir.tensor(3, (1,), ir.I64), ir.tensor(4, (1,), ir.F32)]
    op = ir.CtcLoss(*tensors[:4], 0, tensors[4])
    rest = (jnp.asarray([[1]]), jnp.asarray([2]), jnp.asarray([1]))
    gradient = jax.grad(lambda x: lowering_of(ir.CtcLoss)(op, x, *rest).sum())(log_probs)
    # Three paths collapse to the target, each of likelihood 1/9: (1, blank), (blank, 1), (1, 1).
    np.testing.assert_allclose(gradient[:, 0], [[-1 / 3, -2 / 3, 0], [-1 / 3, -2 / 3, 0]], rtol=1e-5)
