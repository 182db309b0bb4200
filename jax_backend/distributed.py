"""One program over several processes, on one host or on many.

    join()                                   # first of all, in every process
    spmd = Spmd(jax.devices())               # the devices of all processes
    spmd.run(step, {0: rows})                # rows: one per device of this process

jax connects the processes and carries the data: gloo between CPUs, NCCL between GPUs, the interconnect between TPUs.

Promise: who is started by `burn-xla launch`, Slurm, Open MPI or on Cloud TPU needs no further settings.
"""

import os
from typing import Final

import jax

COORDINATOR: Final = "JAX_COORDINATOR_ADDRESS"
NUM_PROCESSES: Final = "BURN_XLA_NUM_PROCESSES"
PROCESS_ID: Final = "BURN_XLA_PROCESS_ID"


def join(*, timeout_s: int = 300, heartbeat_timeout_s: int = 100) -> None:
    """Connect this process with the others. To be called once, before anything asks jax for its devices.

    Args:
        timeout_s: how long the others may take to start.
        heartbeat_timeout_s: after which silence of one process the others end.

    Raises:
        RuntimeError: jax has started already, or the others did not come.
        ValueError: nothing says which process of how many this is.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    count, number = os.environ.get(NUM_PROCESSES), os.environ.get(PROCESS_ID)
    jax.distributed.initialize(  # what is None here jax takes from Slurm, Open MPI, Kubernetes or the TPU's metadata
        num_processes=int(count) if count else None,
        process_id=int(number) if number else None,
        initialization_timeout=timeout_s,
        heartbeat_timeout_seconds=heartbeat_timeout_s,
    )
