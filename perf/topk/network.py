#!/usr/bin/env python3
"""The communication of one training step over a slow network: gloo, dense 2D and TopK, in turn, in one run.

  perf/topk/network.py --nodes 2 --ranks 2 --rate 1gbit          needs root; --json FILE writes the figures

Gradients the size of ResNet-50's (25.6 million float32, 102 MB) in DDP's buckets of 25 MB. Nodes are network
namespaces joined by a bridge, each side shaped with tbf (torch_taco/bench/cluster.py). Each way gets new gradients
before every step. A step's time is that of its slowest rank; medians over the steps. The bytes are those that the
kernel counted on the nodes' interfaces while only this way ran, and stand beside what the formula says.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

PARAMETERS = 25_557_032
BUCKET_ELEMENTS = (25 << 20) // 4
PORT = 29655


def buckets(parameters):
    sizes = []
    while parameters > 0:
        sizes.append(min(parameters, BUCKET_ELEMENTS))
        parameters -= sizes[-1]
    return sizes


def ways(ratios):
    """name -> (backend, options of the group)"""
    chosen = {"gloo": ("gloo", None), "taco 2d": ("taco", {})}
    for ratio in ratios:
        chosen[f"taco topk {ratio:g}"] = ("taco", {"topk": True, "topk_ratio": ratio})
        chosen[f"taco topk {ratio:g} fp16"] = ("taco", {"topk": True, "topk_ratio": ratio, "topk_fp16": True})
    return chosen


def formula_bytes(backend, options, nodes, ranks, parameters):
    """What one node sends for one step, payload only."""
    if backend == "gloo":  # a ring over all ranks in node order: one of them sends to the next node
        world = nodes * ranks
        return 2 * (world - 1) / world * 4 * parameters
    if not options:
        return 2 * (nodes - 1) / nodes * 4 * parameters
    sent = 0
    for elements in buckets(parameters):
        each = -(-elements // ranks)
        for position in range(ranks):
            own = max(0, min(each, elements - position * each))
            sent += max(1, int(options["topk_ratio"] * own)) * (6 if options.get("topk_fp16") else 8)
    return (nodes - 1) * sent


def rank_main(local, node, arguments, folder):
    import torch
    import torch.distributed as dist

    import torch_taco

    nodes, ranks = arguments.nodes, arguments.ranks
    world = nodes * ranks
    os.environ.update(RANK=str(node * ranks + local), WORLD_SIZE=str(world), LOCAL_RANK=str(local),
                      LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR=os.environ["BENCH_MASTER"], MASTER_PORT=str(PORT))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gradients = [torch.randn(size) for size in buckets(arguments.parameters)]
    data = [torch.empty_like(one) for one in gradients]
    groups = {name: dist.new_group(backend=backend, pg_options=torch_taco.Options(**options) if backend == "taco" else None)
              for name, (backend, options) in ways(arguments.ratio).items()}

    def sent_bytes():
        """By this node since it was made."""
        for line in pathlib.Path("/proc/self/net/dev").read_text().splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == "eth0":
                return int(counters.split()[8])
        raise RuntimeError("this node has no eth0")

    times = {name: [] for name in groups}
    wire = {name: [] for name in groups}
    for step in range(arguments.steps + 1):
        for name, group in groups.items():
            for target, source in zip(data, gradients):
                torch.mul(source, 1 + step / 7, out=target)
            dist.barrier()
            before, started = sent_bytes(), time.perf_counter()
            works = [dist.all_reduce(one, group=group, async_op=True) for one in data]
            for work in works:
                work.wait()
            seconds = time.perf_counter() - started
            slowest = torch.tensor([seconds])
            dist.barrier()
            if step > 0:
                wire[name].append(sent_bytes() - before)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            if step > 0:
                times[name].append(slowest.item())
    if rank == 0:
        pathlib.Path(folder, "result.json").write_text(json.dumps({"times": times, "wire": wire}))
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="of each node")
    parser.add_argument("--rate", default="1gbit", help="of each node's cable, as tc writes it; none: not shaped")
    parser.add_argument("--ratio", type=float, nargs="+", default=[0.01])
    parser.add_argument("--parameters", type=int, default=PARAMETERS)
    parser.add_argument("--steps", type=int, default=5, help="measured, after one that is not")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--node", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.node is not None:
        import torch.multiprocessing as mp

        mp.start_processes(rank_main, (arguments.node, arguments, arguments.folder), arguments.ranks,
                           start_method="fork")
        return

    import tempfile

    from torch_taco.bench import cluster

    rate = None if arguments.rate == "none" else arguments.rate
    with cluster.Cluster(arguments.nodes, rate=rate) as made, tempfile.TemporaryDirectory() as folder:
        made.run(lambda node: [sys.executable, __file__, *sys.argv[1:], "--node", str(node.index), "--folder", folder],
                 timeout=600, env={"BENCH_MASTER": made[0].address, "GLOO_SOCKET_IFNAME": "eth0"})
        result = json.loads(pathlib.Path(folder, "result.json").read_text())

    base = statistics.median(result["times"]["gloo"])
    rows = []
    print(f"{arguments.nodes} nodes x {arguments.ranks} ranks, {arguments.rate}, {arguments.parameters} float32 in buckets "
          f"of {BUCKET_ELEMENTS}; median of {arguments.steps} interleaved steps")
    print(f"{'':20} {'ms a step':>10} {'gloo / it':>10} {'MB sent by node 0':>18} {'formula':>9} {'on the wire / formula':>22}")
    for name, (backend, options) in ways(arguments.ratio).items():
        seconds = statistics.median(result["times"][name])
        expected = formula_bytes(backend, options, arguments.nodes, arguments.ranks, arguments.parameters)
        counted = statistics.median(result["wire"][name])
        rows.append({"way": name, "seconds": seconds, "gloo_ratio": base / seconds, "sent_bytes": counted,
                     "formula_bytes": expected})
        print(f"{name:20} {seconds * 1e3:10.1f} {base / seconds:10.2f} {counted / 1e6:18.2f} {expected / 1e6:9.2f} "
              f"{counted / expected:22.3f}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(
            {"nodes": arguments.nodes, "ranks": arguments.ranks, "rate": arguments.rate, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
