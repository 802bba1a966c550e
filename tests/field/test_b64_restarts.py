"""B64 (pytorch#91940): torchrun --max-restarts 2, and rank 1 exits with 1 once: the second attempt must succeed.

torchrun keeps one store over all attempts. What the first attempt has left there, the second must not take for its
own: it may have got as far as before the rendezvous, or into the group. (A crash before taco://:
tests/torch/test_launchers.py.)"""

import pytest

import launching
import ranks

SCRIPT = """
import json, os, sys, torch, torch.distributed as dist
when, method, out = sys.argv[1:]
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
if when == "before" and attempt == 0 and rank == 1:
    sys.exit(1)
dist.init_process_group("{backend}", init_method=method)
tensor = torch.full((1000,), rank + 1.0)
dist.all_reduce(tensor)
if when == "after" and attempt == 0 and rank == 1:
    sys.exit(1)
group = dist.new_group([0, 1])
dist.all_reduce(tensor, group=group)
dist.barrier()
with open(f"{{out}}/{{rank}}", "w") as file:
    json.dump([attempt, tensor.unique().tolist()], file)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("when, method, launcher", [
    ("before", "env://", "--master-port {port}"), ("after", "taco://" if ranks.IS_TACO else "env://", "--standalone")])
def test_second_attempt(tmp_path, when, method, launcher):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(backend=ranks.BACKEND))
    launching.run(f"torchrun --nproc-per-node 2 --max-restarts 2 {launcher.format(port=launching.free_port())} "
                  f"{script} {when} {method} {tmp_path}", timeout=120)
    assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == ["[1, [6.0]]", "[1, [6.0]]"]
