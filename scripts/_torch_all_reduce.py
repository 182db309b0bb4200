"""One process of torch.distributed that times all-reduces on request, for bench_allreduce.py.

    python scripts/_torch_all_reduce.py RANK WORLD STORE

Joins `WORLD` processes through the file `STORE`: NCCL with a GPU each, gloo without. Each line of standard input is
`LENGTH PARTS ROUNDS ROW`; rank 0 answers with the median seconds of a round in which `PARTS` f32 arrays of `LENGTH`
elements are reduced, first when each round is waited for, then in rows of `ROW`.
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist


def measured(given: list[torch.Tensor], rounds: int) -> float:
    """Seconds of one of `rounds` in a row, in place."""
    began = time.perf_counter()
    for _ in range(rounds):
        for pending in [dist.all_reduce(array, async_op=True) for array in given]:
            pending.wait()
    if given[0].is_cuda:
        torch.cuda.synchronize(given[0].device)
    return (time.perf_counter() - began) / rounds


def medians(device: torch.device, length: int, parts: int, rounds: int, row: int) -> tuple[float, float]:
    """Seconds of a round that is waited for, and of one in a row: medians of `rounds` after two to warm up."""
    given = [torch.zeros(length, device=device) for _ in range(parts)]
    measured(given, 2)
    pairs = [(measured(given, 1), measured(given, row)) for _ in range(rounds)]
    alone, in_a_row = zip(*pairs, strict=True)
    return statistics.median(alone), statistics.median(in_a_row)


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
        length, parts, rounds, row = map(int, line.split())
        times = medians(device, length, parts, rounds, row)
        if rank == 0:
            print(*times, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
