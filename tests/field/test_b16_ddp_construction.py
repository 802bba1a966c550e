"""B16 (pytorch#48188): after DDP's construction some ranks kept parameters of their own."""

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import models
import ranks


class OddSizes(torch.nn.Module):
    """Forty parameters and forty buffers of odd sizes and several dtypes."""

    def __init__(self):
        super().__init__()
        dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
        for i in range(40):
            shape = [(2 * i + 1,), (3, i + 1), (1, 2, i + 1), ()][i % 4]
            self.register_parameter(f"weight{i}", torch.nn.Parameter(torch.randn(shape).to(dtypes[i // 4 % 4])))
            buffer = torch.randint(0, 100, (i + 1,))
            self.register_buffer(f"buffer{i}", buffer > 50 if i % 3 == 0 else buffer.to(dtypes[i % 4]))


def construct(rank, world, times):
    for attempt in range(times):
        torch.manual_seed(1000 * attempt + rank)
        ddp = DistributedDataParallel(OddSizes(), bucket_cap_mb=0.001 if attempt % 2 else 25)
        torch.manual_seed(1000 * attempt)
        from_rank_0 = OddSizes()
        for name, tensor in ddp.module.state_dict().items():
            assert tensor.equal(from_rank_0.state_dict()[name]), (attempt, name)
        assert models.equal_across_ranks(list(ddp.module.state_dict().values())), attempt


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_all_equal_to_rank_0(pool, layout):
    pool.run(construct, 50 if layout.world == 4 else 10)
