"""B26 (pytorch PR#179291): a script that ended with works in flight and no destroy_process_group crashed."""

import pytest

import ranks
import scripts

IN_FLIGHT = """
import torch, torch.distributed as dist
dist.init_process_group(BACKEND)
tensors = [torch.ones(1000 * (i + 1)) for i in range(3)]
works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
"""

ENDINGS = {
    "local": "def main():\n" + "\n".join("    " + line for line in IN_FLIGHT.splitlines()) + "\nmain()\n",
    "global": IN_FLIGHT,
    "cycle": IN_FLIGHT + """
class Holder: pass
holder = Holder()
holder.me, holder.works, holder.group = holder, works, dist.group.WORLD
del works, tensors, holder
""",
    "point_to_point": """
import torch, torch.distributed as dist
dist.init_process_group(BACKEND)
rank, world = dist.get_rank(), dist.get_world_size()
sent, received = torch.ones(100000), torch.empty(100000)
works = [dist.isend(sent, (rank + 1) % world), dist.irecv(received, (rank - 1) % world)]
""",
    "new_groups": IN_FLIGHT + """
groups = [dist.new_group() for _ in range(3)]
more = [dist.all_gather([torch.empty(5) for _ in range(dist.get_world_size())], torch.ones(5), group=group,
                        async_op=True) for group in groups]
""",
    "with_callbacks": IN_FLIGHT + """
chained = [work.get_future().then(lambda future: future.value()[0] * 2) for work in works]
""",
    "sys_exit_0": IN_FLIGHT + "import sys; sys.exit(0)\n",
}


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("ending", ENDINGS)
def test_ends_with_0(layout, ending):
    # As reported: 30 times; the other ways of ending share the same code after the first few.
    repeats = 30 if (ending, layout.name) == ("global", "1x2") else 2
    scripts.assert_clean(scripts.run(ENDINGS[ending], layout.world, repeats=repeats, env=layout.env))
