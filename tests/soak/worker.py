"""One rank of the soak (soak.py): random operations on random groups, every result checked, until it is stopped.

What the ranks do together follows from the seed and the attempt, the same on all of them; how long each dawdles, and
how it waits, is its own. Any error but that of a dead rank is written into the folder, and so is growth.
"""

import json
import os
import pathlib
import random
import sys
import time
from datetime import timedelta

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import operations  # noqa: E402

TIMEOUT = timedelta(seconds=20)
ROUND = 12  # operations between two looks at whether to stop
GROUPS = 3  # at a time, beside the default one
MOST_ELEMENTS = 1 << 19
SETTLED = 8  # rounds until a process has its buffers and caches
# Of the resident memory after that: what an allocator keeps of tensors of random sizes.
MOST_GROWTH_BYTES = 96 << 20
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.complex64]


def write(path, text):
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def holdings():
    """(descriptors, threads, resident bytes) of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), pages * os.sysconf("SC_PAGE_SIZE"))


class Worker:
    def __init__(self, seed, folder):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        self.together = random.Random(f"{seed} {attempt}")
        self.own = random.Random(f"{seed} {attempt} {self.rank}")
        self.folder = folder
        self.groups = []
        self.done = 0
        write(folder / f"rank{self.rank}", json.dumps({"pid": os.getpid(), "attempt": attempt, "done": 0}))

    def new_groups(self):
        """Random subsets; a group of which this rank is no member stays a place in the list, since all count alike."""
        for group in self.groups:
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)
        self.groups = []
        for _ in range(self.together.randint(1, GROUPS)):
            members = sorted(self.together.sample(range(self.world), self.together.randint(1, self.world)))
            self.groups.append(dist.new_group(members, timeout=TIMEOUT))

    def one(self):
        group = self.together.choice([None, *self.groups])
        operation = operations.OPERATIONS[self.together.choice(sorted(operations.OPERATIONS))]
        numel = int(2 ** self.together.uniform(0, MOST_ELEMENTS.bit_length() - 1))
        dtype = self.together.choice(DTYPES)
        allowed = operations.reductions(dtype, operation.name) if operation.reduces else [operations.SUM]
        reduction = self.together.choice(allowed)
        draw = self.together.random()
        if self.own.random() < 0.3:
            time.sleep(self.own.uniform(0, 0.02))
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            return
        world = dist.get_world_size(group)
        case = operations.Case(dist.get_rank(group), world, (max(1, numel // world),), dtype, reduction,
                               int(draw * world), group)
        if world == 1 and operation.name in ("send_recv", "batch_isend_irecv"):
            return
        operation.run(case, async_op=self.own.random() < 0.5)
        self.done += 1

    def stop_is_wanted(self):
        flag = torch.tensor([float(self.rank == 0 and (self.folder / "stop").exists())])
        dist.all_reduce(flag)
        return flag.item() > 0

    def work(self):
        first = None
        for number in range(1 << 30):
            self.new_groups()
            for _ in range(ROUND):
                self.one()
            write(self.folder / f"rank{self.rank}", json.dumps({
                "pid": os.getpid(), "attempt": int(os.environ["TORCHELASTIC_RESTART_COUNT"]), "done": self.done}))
            stop = self.stop_is_wanted()
            if number == SETTLED:
                first = holdings()
            if first is not None and (stop or number % 25 == 0):
                self.check_growth(first)
            if stop:
                return

    def check_growth(self, first):
        # Each round has other groups: compared are the most that they can hold.
        now = holdings()
        most = (first[0] + 40 * GROUPS, first[1] + 4 * GROUPS, first[2] + MOST_GROWTH_BYTES)
        assert all(a <= b for a, b in zip(now, most, strict=True)), \
            f"grows: (descriptors, threads, resident bytes) were {first} after {SETTLED} rounds, now {now}"


def main():
    seed, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
    try:
        dist.init_process_group("taco", timeout=TIMEOUT)
        before = holdings()
        worker = Worker(seed, folder)
        worker.work()
        for group in worker.groups:
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)
        worker.groups = []
        dist.barrier()
        after = holdings()
        # The lane's and the messages' thread and connections of the default group came with its first use.
        assert after[0] <= before[0] + 4 * worker.world and after[1] <= before[1] + 4, \
            f"left behind: (descriptors, threads, resident bytes) were {before}, now {after}"
        dist.destroy_process_group()
        write(folder / f"ended{rank}", json.dumps({"done": worker.done}))
    except BaseException as error:
        kind = "error" if isinstance(error, RuntimeError) else "wrong"
        write(folder / f"{kind}-{attempt}-{rank}", f"{type(error).__name__}: {error}")
        os._exit(1)


if __name__ == "__main__":
    main()
