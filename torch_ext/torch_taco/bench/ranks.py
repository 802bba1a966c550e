"""The processes of a benchmark: one for each rank, forked, told what to do over a pipe each."""

import contextlib
import datetime
import mmap
import multiprocessing
import multiprocessing.connection
import os
import socket
import time
import traceback

import torch
import torch.distributed as dist

import torch_taco

from . import compressed, ddp, place
from .errors import BenchError
from .problem import Problem

# A measurement that takes longer is taken for a hang.
PATIENCE_SECONDS = 300
CACHE_LINE = 64
MEMORY_PART_BYTES = 64 << 20
MEMORY_REPEATS = 5
CLUSTER_PORT = 29400
# How late the last rank comes to a barrier that is checked.
LATE_SECONDS = 0.02


class SharedCounts:
    """A number of each rank, on a cache line of its own, that all of them see."""

    def __init__(self, ranks):
        self.memory = memoryview(mmap.mmap(-1, ranks * CACHE_LINE)).cast("Q")
        self.words = [rank * CACHE_LINE // 8 for rank in range(ranks)]

    def count_up(self, rank):
        self.memory[self.words[rank]] += 1
        return self.memory[self.words[rank]]

    def behind(self, value):
        """How many ranks have not counted so far."""
        return sum(self.memory[word] < value for word in self.words)


class StartLine(SharedCounts):
    """A barrier of the benchmark's own, so that every contender's repeats start alike. It yields while it waits: there
    may be more ranks than cores."""

    def wait(self, rank):
        mine = self.count_up(rank)
        deadline = time.monotonic() + PATIENCE_SECONDS
        for word in self.words:
            while self.memory[word] < mine:
                os.sched_yield()
                if time.monotonic() > deadline:
                    raise BenchError("the other ranks did not come to the start line")


class Rank:
    """What runs in one process."""

    def __init__(self, rank, request, meeting, start_line, arrivals):
        self.rank = rank
        self.node = rank * request.nodes // request.ranks
        self.request = request
        self.start_line = start_line
        self.arrivals = arrivals  # at a barrier
        torch.set_num_threads(1)  # the ranks share the cores
        if request.bind:
            place.bind_to_core(rank)
        timeout = datetime.timedelta(seconds=PATIENCE_SECONDS)
        store = dist.TCPStore(*meeting, request.ranks, is_master=rank == 0, timeout=timeout)
        self.groups = []
        for contender in request.contenders:
            os.environ.update(contender.environment)  # read when a group is made
            if self.groups:
                self.groups.append(dist.new_group(backend=contender.backend, timeout=timeout))
            else:
                dist.init_process_group(contender.backend, store=store, rank=rank, world_size=request.ranks,
                                        timeout=timeout)
                self.groups.append(dist.group.WORLD)
            for name in contender.environment:
                del os.environ[name]

    def measure(self, what, size, repeats, trial):
        """what: collective, dtype, op. By contender: seconds of every repeat, CPU seconds of every repeat, and wrong
        elements. A trial is checked after every operation, otherwise the last one is."""
        ranks = self.request.ranks
        collective, dtype, op = what
        problem = Problem(collective, size, getattr(torch, dtype), op, self.rank, ranks)
        buffers = self.buffers(problem) if collective == "all_reduce" else None
        contenders = range(len(self.groups))
        seconds, cpu, wrong = [[] for _ in contenders], [[] for _ in contenders], [0 for _ in contenders]
        for repeat in range(repeats):
            for turn in contenders:
                which = (turn + repeat) % len(self.groups)
                if buffers:
                    problem.use(buffers[which])
                problem.prepare()
                self.start_line.wait(self.rank)
                arrival = 0
                if collective == "barrier":
                    arrival = self.arrive(late=trial and repeat % ranks == self.rank)
                cpu_began = time.process_time()
                began = time.perf_counter()
                if topk := self.request.contenders[which].topk:
                    compressed.run(problem, self.groups[which], topk)
                else:
                    problem.run(self.groups[which])
                seconds[which].append(time.perf_counter() - began)
                cpu[which].append(time.process_time() - cpu_began)
                if arrival:
                    wrong[which] += self.arrivals.behind(arrival)
                if trial or repeat == repeats - 1:
                    wrong[which] += (compressed.wrong(problem, self.groups[which], topk, self.node) if topk
                                     else problem.wrong())
        return seconds, cpu, wrong

    def buffers(self, problem):
        """By contender: where its all-reduce runs. All use the same one, but for those in shared memory."""
        made = []
        for contender, group in zip(self.request.contenders, self.groups):
            if contender.algorithm == "shared":
                made.append(torch_taco.shared_empty(problem.whole, dtype=problem.dtype, group=group))
            else:
                made.append(problem.buffer)
        return made

    def arrive(self, late):
        """At a barrier, which must let nobody on before the last has arrived: in a trial, one rank is late."""
        if late:
            time.sleep(LATE_SECONDS)
        return self.arrivals.count_up(self.rank)

    def memory_seconds(self):
        """Of a += b over arrays that fit into no cache: every rank at once, 3 bytes of traffic for each byte of a."""
        elements = MEMORY_PART_BYTES // 4 // self.request.ranks
        first, second = torch.zeros(elements), torch.ones(elements)
        taken = []
        for _ in range(MEMORY_REPEATS):
            self.start_line.wait(self.rank)
            began = time.perf_counter()
            first.add_(second)
            taken.append(time.perf_counter() - began)
        return taken

    def ddp(self, repeats):
        if not hasattr(self, "training"):
            self.training = ddp.Training(self.request, self.rank, self.groups, self.start_line)
        return self.training.measure(repeats)

    def serve(self, pipe):
        while (order := pipe.recv()) is not None:
            name, *arguments = order
            pipe.send(("done", getattr(self, name)(*arguments)))
        self.start_line.wait(self.rank)
        dist.destroy_process_group()


def rank_main(rank, request, node, meeting, start_line, arrivals, pipe):
    try:
        place.die_with_parent()
        if node is not None:
            place.enter(node)
            os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        else:
            os.environ["TACO_NODE_ID"] = str(rank * request.nodes // request.ranks)
        worker = Rank(rank, request, meeting, start_line, arrivals)
        pipe.send(("done", None))
        worker.serve(pipe)
    except EOFError:
        os._exit(1)  # the parent has gone: nobody will ever ask
    except (Exception, KeyboardInterrupt) as error:
        text = str(error).strip() or type(error).__name__
        with contextlib.suppress(OSError):
            pipe.send(("failed", text if isinstance(error, (BenchError, RuntimeError, ValueError))
                       else traceback.format_exc()))
        os._exit(1)  # the other ranks may be in the middle of an operation


class Ranks:
    """All ranks, from the parent's side. A context: on the way out every process has ended.
    cluster: whose nodes they run on; None: on this machine as it is."""

    def __init__(self, request, cluster=None):
        context = multiprocessing.get_context("fork")  # torch is loaded once
        start_line, arrivals = StartLine(request.ranks), SharedCounts(request.ranks)
        meeting = (cluster[0].address, CLUSTER_PORT) if cluster else ("127.0.0.1", free_port())
        self.pipes = []
        self.processes = []
        for rank in range(request.ranks):
            node = cluster[rank * request.nodes // request.ranks] if cluster else None
            here, there = context.Pipe()
            arguments = (rank, request, node, meeting, start_line, arrivals, there)
            process = context.Process(target=rank_main, args=arguments, daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def __enter__(self):
        try:
            self.answers()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.tell(None)
            for process in self.processes:
                process.join(10)
        self.end()

    def end(self):
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()

    def ask(self, *order):
        """What every rank answers to an order: a method of Rank and its arguments."""
        self.tell(order)
        return self.answers()

    def tell(self, order):
        for pipe in self.pipes:
            with contextlib.suppress(OSError):  # that rank has gone: answers() finds out why
                pipe.send(order)

    def answers(self):
        """One answer of every rank, in rank order; BenchError as soon as one of them fails."""
        answers = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(answers) < len(self.pipes):
            waiting = [pipe for rank, pipe in enumerate(self.pipes) if rank not in answers]
            for pipe in multiprocessing.connection.wait(waiting, timeout=1):
                rank = self.pipes.index(pipe)
                try:
                    kind, value = pipe.recv()
                except EOFError:
                    raise BenchError(f"rank {rank} ended without a word") from None
                if kind == "failed":
                    raise BenchError(f"rank {rank}: {value}")
                answers[rank] = value
            if time.monotonic() > deadline:
                missing = ", ".join(str(rank) for rank in range(len(self.pipes)) if rank not in answers)
                raise BenchError(f"rank(s) {missing} did not answer within {PATIENCE_SECONDS} s")
        return [answers[rank] for rank in range(len(self.pipes))]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
