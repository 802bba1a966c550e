"""B08 (pytorch#111131): bfloat16 sums were rounded at every hop, so that 256 + 1 + 1 stayed 256.

float16 and bfloat16 add up in float32 and round at most once a level (node, network); what only moves data
moves every bit.
"""

import pytest
import torch
import torch.distributed as dist

import operations
import ranks

# The smallest power of two whose ulp is 2: one more is lost by each rounding.
EDGES = {torch.bfloat16: 256.0, torch.float16: 2048.0}


def allowed(values, dtype, nodes):
    """The sums that arise when every level rounds once or not at all."""
    def rounded(value):
        return torch.tensor(value, dtype=torch.float64).to(dtype).double().item()

    in_node = len(values) // nodes
    levels = [sum(values[node * in_node:(node + 1) * in_node]) for node in range(nodes)]
    sums = {rounded(sum(values))}
    if nodes > 1:
        sums.add(rounded(sum(rounded(level) for level in levels)))
    return sums


def sums(rank, world, dtype, nodes):
    edge = EDGES[dtype]
    for count in [1, 1000, 70_001]:
        for big in range(world):
            values = [edge if r == big else 1.0 for r in range(world)]
            want = allowed(values, dtype, nodes)
            mine = torch.full((count,), values[rank], dtype=dtype)
            got = {}
            got["all_reduce"] = mine.clone()
            dist.all_reduce(got["all_reduce"])
            got["reduce"] = mine.clone()
            dist.reduce(got["reduce"], 0)
            if rank != 0:
                got.pop("reduce")
            got["reduce_scatter"] = torch.zeros_like(mine)
            dist.reduce_scatter(got["reduce_scatter"], [mine] * world)
            got["reduce_scatter_tensor"] = torch.zeros_like(mine)
            dist.reduce_scatter_tensor(got["reduce_scatter_tensor"], mine.repeat(world))
            got["all_reduce_coalesced"] = mine.clone()
            dist.all_reduce_coalesced([got["all_reduce_coalesced"]])
            for name, tensor in got.items():
                found = set(tensor.double().unique().tolist())
                assert len(found) == 1 and found <= want, (name, count, big, found, want)


def every_bit_pattern(rank, world, dtype):
    """All 65536 of them, NaN payloads and signed zeros included."""
    def mine(r):
        return torch.arange(65536, dtype=torch.int32).roll(r).to(torch.uint16).view(torch.int16).view(dtype)

    for name, operation in operations.OPERATIONS.items():
        if operation.reduces:
            continue
        case = operations.Case(rank, world, (65536,), dtype)
        inputs, outputs = operation.buffers(case)
        # The catalogue's shapes with these contents: every input is this rank's list of all patterns.
        for tensor in inputs + (outputs if name == "broadcast" else []):
            tensor.copy_(mine(rank).repeat(tensor.numel() // 65536))
        for work in operation.issue(case, inputs, outputs, False):
            work.wait()
        got = torch.cat(outputs).view(torch.int16).reshape(-1, 65536) if outputs else []
        known = [mine(r).view(torch.int16) for r in range(world)]
        for row in got:
            assert any(torch.equal(row, one) for one in known), name


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", EDGES, ids=str)
def test_sums_round_once(pool, layout, dtype):
    pool.run(sums, dtype, layout.nodes)


def test_as_reported(pools):
    assert allowed([256.0, 1.0, 1.0], torch.bfloat16, 1) == {258.0}
    for layout in ranks.layouts(3):
        assert pools(layout).run(sum_of_three) == [[258.0]] * 3


def sum_of_three(rank, world):
    tensor = torch.tensor([[256.0], [1.0], [1.0]][rank], dtype=torch.bfloat16)
    dist.all_reduce(tensor)
    return tensor.tolist()


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", EDGES, ids=str)
def test_data_moves_bit_by_bit(pool, dtype):
    pool.run(every_bit_pattern, dtype)
