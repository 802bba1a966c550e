"""The processes of a benchmark: one for each rank, forked, told what to do over a pipe each."""

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

from .problem import Problem

# A measurement that takes longer is taken for a hang.
PATIENCE_SECONDS = 300
CACHE_LINE = 64


class BenchError(RuntimeError):
    """One sentence for the user."""


class StartLine:
    """A barrier of the benchmark's own, so that every contender's repeats start alike: each rank counts up its word in
    shared memory and waits until all have. It yields while it waits: there may be more ranks than cores."""

    def __init__(self, ranks):
        self.memory = memoryview(mmap.mmap(-1, ranks * CACHE_LINE)).cast("Q")
        self.words = [rank * CACHE_LINE // 8 for rank in range(ranks)]

    def wait(self, rank):
        mine = self.memory[self.words[rank]] + 1
        self.memory[self.words[rank]] = mine
        deadline = time.monotonic() + PATIENCE_SECONDS
        for word in self.words:
            while self.memory[word] < mine:
                os.sched_yield()
                if time.monotonic() > deadline:
                    raise BenchError("the other ranks did not come to the start line")


class Rank:
    """What runs in one process."""

    def __init__(self, rank, request, port, start_line):
        self.rank = rank
        self.request = request
        self.start_line = start_line
        torch.set_num_threads(1)  # the ranks share the cores
        os.environ["TACO_NODE_ID"] = str(rank * request.nodes // request.ranks)
        timeout = datetime.timedelta(seconds=PATIENCE_SECONDS)
        store = dist.TCPStore("127.0.0.1", port, request.ranks, is_master=rank == 0, timeout=timeout)
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

    def measure(self, size, repeats):
        """Seconds of every repeat and wrong elements of the last result, by contender."""
        request = self.request
        dtype = getattr(torch, request.dtype)
        problem = Problem(max(1, size // dtype.itemsize), dtype, request.op, self.rank, request.ranks)
        op = getattr(dist.ReduceOp, request.op.upper())
        buffer = torch.empty_like(problem.input)
        contenders = range(len(self.groups))
        seconds = [[] for _ in contenders]
        wrong = [0 for _ in contenders]
        for repeat in range(repeats):
            for turn in contenders:
                which = (turn + repeat) % len(self.groups)
                group = self.groups[which]
                buffer.copy_(problem.input)
                self.start_line.wait(self.rank)
                began = time.perf_counter()
                dist.all_reduce(buffer, op=op, group=group)
                seconds[which].append(time.perf_counter() - began)
                if repeat == repeats - 1:
                    wrong[which] = problem.wrong(buffer)
        return seconds, wrong

    def serve(self, pipe):
        parent = os.getppid()
        while True:
            while not pipe.poll(1):
                if os.getppid() != parent:
                    return  # killed: nobody will ever ask
            order = pipe.recv()
            if order is None:
                break
            pipe.send(("measured", self.measure(*order)))
        self.start_line.wait(self.rank)
        dist.destroy_process_group()


def rank_main(rank, request, port, start_line, pipe):
    try:
        worker = Rank(rank, request, port, start_line)
        pipe.send(("ready", None))
        worker.serve(pipe)
    except (Exception, KeyboardInterrupt) as error:
        text = str(error).strip() or type(error).__name__
        try:
            pipe.send(("failed", text if isinstance(error, (BenchError, RuntimeError, ValueError))
                       else traceback.format_exc()))
        except OSError:
            pass  # the parent has gone: nobody to tell
        os._exit(1)  # the other ranks may be in the middle of an operation


class Ranks:
    """All ranks, from the parent's side. A context: on the way out every process has ended."""

    def __init__(self, request):
        context = multiprocessing.get_context("fork")  # torch is loaded once
        start_line = StartLine(request.ranks)
        port = free_port()
        self.pipes = []
        self.processes = []
        for rank in range(request.ranks):
            here, there = context.Pipe()
            process = context.Process(target=rank_main, args=(rank, request, port, start_line, there), daemon=True)
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

    def measure(self, size, repeats):
        self.tell((size, repeats))
        return self.answers()

    def tell(self, order):
        for pipe in self.pipes:
            try:
                pipe.send(order)
            except OSError:
                pass  # that rank has gone: answers() finds out why

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
