"""One process of torch.distributed that times all-reduces on request, for bench_allreduce.py.

    python scripts/_torch_all_reduce.py RANK WORLD STORE

Joins `WORLD` processes through the file `STORE`: NCCL with a GPU each, gloo without. Each line of standard input is
`LENGTH PARTS ROUNDS`; rank 0 answers with the median seconds of a round in which `PARTS` f32 arrays of `LENGTH`
elements are reduced and waited for.
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist


def median(device: torch.device, length: int, parts: int, rounds: int) -> float:
    """Seconds of one round, the median of `rounds` after three to warm up."""
    given = [torch.ones(length, device=device) for _ in range(parts)]
    times: list[float] = []
    for _ in range(rounds + 3):
        began = time.perf_counter()
        for pending in [dist.all_reduce(array, async_op=True) for array in given]:
            pending.wait()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[3:])


def main() -> None:
    """Answer requests until standard input ends."""
    rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= world
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if on_gpu else "gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    for line in sys.stdin:
        length, parts, rounds = map(int, line.split())
        seconds = median(device, length, parts, rounds)
        if rank == 0:
            print(seconds, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
