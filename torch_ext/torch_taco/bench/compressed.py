"""A TopK-compressed all-reduce as a contender, and what must be true of it: the same bits on every rank, and result +
what all ranks have kept = the sum of the inputs, exactly, since the problem's numbers are small."""

import torch
import torch.distributed as dist

import torch_taco
from torch_taco._group import _backend_of


def run(problem, group, ratio):
    _backend_of(group).topk_all_reduce(problem.buffer, ratio).wait()


def wrong(problem, group, ratio, node):
    """Wrong elements of one more operation, which begins with nothing kept. node: the number of this rank's."""
    _backend_of(group).reset_residuals(problem.buffer)
    problem.prepare()
    run(problem, group, ratio)
    first = problem.buffer.clone()
    dist.broadcast(first, 0, group=group)
    kept = held(problem, group, node)
    found = 0
    for begin, part in problem.parts(problem.buffer):
        total = part.double() + kept[begin : begin + len(part)].double()
        right = (total == problem.expected(begin, len(part)).double()) & (part == first[begin : begin + len(part)])
        found += len(part) - int(right.sum())
    return found


def held(problem, group, node):
    """What all ranks together have kept of the buffer. Flat, each rank keeps a part of every element; in 2D, of its
    slice, and the slices of a node's ranks follow each other."""
    mine = _backend_of(group).residual_of(problem.buffer)
    kind, residual = ("flat", torch.empty(0)) if mine is None else mine[:2]
    lengths = [None] * dist.get_world_size(group)
    dist.all_gather_object(lengths, (node, len(residual)), group=group)
    before = lengths[: dist.get_rank(group)] if kind == "2d" else []
    begin = sum(length for its_node, length in before if its_node == node)
    whole = torch.zeros(problem.whole)
    whole[begin : begin + len(residual)] = residual
    with torch_taco.exact():
        dist.all_reduce(whole, group=group)
    return whole
