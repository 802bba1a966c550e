"""What `make demo` runs: train_ddp.py's training in 4 processes that TACO takes for 2 nodes of 2 ranks.

TACO_NODE_ID keeps the two halves apart: shared memory inside each "node", TCP between them. The same
training then runs over gloo, in the same processes. Exit code 1 if the network did not learn (test
accuracy below 0.95) or the replicas differ.
"""

import argparse
import datetime
import multiprocessing
import multiprocessing.connection
import os
import socket
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"  # 4 processes share the cores; set before torch is loaded

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import train_ddp

RANKS_PER_NODE = 2
NODES = 2
RANKS = RANKS_PER_NODE * NODES
NEEDED_ACCURACY = 0.95
PATIENCE_SECONDS = 300


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def network_bytes():
    import torch_taco

    return torch_taco.traffic().network_bytes


def train(count_bytes, epochs):
    """One training; what the table needs."""
    torch.manual_seed(0)
    train_set, test_set = train_ddp.digits()
    model = DistributedDataParallel(train_ddp.network())
    before = count_bytes()
    images_per_second = train_ddp.fit(model, train_set, epochs)
    crossed = torch.tensor(count_bytes() - before)
    dist.all_reduce(crossed)
    steps = epochs * -(-len(train_set) // RANKS // 32)
    return {
        "accuracy": train_ddp.accuracy(model.module, *test_set),
        "images_per_second": images_per_second,
        "identical": train_ddp.replicas_identical(model.module),
        "crossed": crossed.item(),
        "reduced": steps * sum(p.numel() * p.element_size() for p in model.parameters()),
    }


def train_over(backend, rank, port, epochs):
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(seconds=60))
    result = train(network_bytes if backend == "taco" else lambda: 0, epochs)
    dist.destroy_process_group()
    return result


def worker(rank, ports, epochs, pipe):
    os.environ["TACO_NODE_ID"] = str(rank // RANKS_PER_NODE)
    results = {backend: train_over(backend, rank, port, epochs) for backend, port in ports.items()}
    if rank == 0:
        pipe.send(results)


def wait_for(workers, patience=PATIENCE_SECONDS):
    """Until all have ended. The ranks that did not end well; who still runs is stopped once one has failed."""
    deadline = time.monotonic() + patience
    running = dict(enumerate(workers))
    failed = []
    while running and not failed:
        multiprocessing.connection.wait([process.sentinel for process in running.values()], timeout=1)
        ended = {rank: process for rank, process in running.items() if process.exitcode is not None}
        failed += [rank for rank, process in ended.items() if process.exitcode != 0]
        running = {rank: process for rank, process in running.items() if rank not in ended}
        if time.monotonic() > deadline:
            failed += running
    time.sleep(1 if failed and running else 0)  # to say themselves what they saw
    for process in running.values():
        process.kill()
        process.join()
    return failed


def show(taco, gloo):
    # docs/algorithms.md derives both: flat sends every slice to every rank, 2D only within a column.
    flat = 2 * RANKS_PER_NODE * (NODES - 1) * taco["reduced"]
    megabytes = 1e-6
    rows = [
        ("", "taco", "gloo"),
        ("test accuracy", f"{taco['accuracy']:.3f}", f"{gloo['accuracy']:.3f}"),
        ("images/s", f"{taco['images_per_second']:.0f}", f"{gloo['images_per_second']:.0f}"),
        ("MB between the nodes", f"{taco['crossed'] * megabytes:.0f}", ""),
        ("  a flat all-reduce", f"{flat * megabytes:.0f}", ""),
    ]
    print(f"\n{NODES} nodes x {RANKS_PER_NODE} ranks, {taco['reduced'] * megabytes:.0f} MB of gradients reduced")
    for name, *values in rows:
        print(f"  {name:22}" + "".join(f"{value:>8}" for value in values))
    # By the hash of all parameters on every rank.
    print(f"replicas identical: {'yes' if taco['identical'] else 'NO'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()

    # Forked: the four need not load torch again.
    context = multiprocessing.get_context("fork")
    results, pipe = context.Pipe(duplex=False)
    ports = {"taco": free_port(), "gloo": free_port()}
    workers = [context.Process(target=worker, args=(rank, ports, arguments.epochs, pipe), daemon=True)
               for rank in range(RANKS)]
    for process in workers:
        process.start()
    if failed := wait_for(workers):
        return f"demo: rank(s) {', '.join(map(str, failed))} failed or did not end within {PATIENCE_SECONDS} s, see above"
    both = results.recv()
    show(both["taco"], both["gloo"])
    if both["taco"]["accuracy"] < NEEDED_ACCURACY:
        return f"demo: the test accuracy {both['taco']['accuracy']:.3f} is below {NEEDED_ACCURACY}"
    if not both["taco"]["identical"]:
        return "demo: the replicas differ"
    return 0


if __name__ == "__main__":
    sys.exit(main())
