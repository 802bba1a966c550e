"""The flight record as users see it: torch_taco.dump(), the files of a failure, and `taco explain-hang` over them."""

import copy
import json
import os
import random
import signal
import stat
import time

import pytest
import torch
import torch.distributed as dist

import failing
import ranks

torch_taco = pytest.importorskip("torch_taco", reason="torch_taco is not installed")
from torch_taco import _flight_files, cli, explain_hang  # noqa: E402

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's own record: TEST_BACKEND is set")


# --- dumps made by hand ---------------------------------------------------------------------------


def operation(sequence, op="all_reduce", state="done", group=1, started=None, finished=None, **more):
    started = 1000.0 + sequence if started is None and state != "queued" else started
    if finished is None and state in ("done", "failed"):
        finished = started + 0.5
    made = {"number": 0, "group": group, "sequence": sequence, "op": op, "title": None, "state": state,
            "dtype": "float32", "count": 4, "elements": 4, "bytes": 16,
            "reduce_op": "SUM" if "reduce" in op else None, "root": None, "peer": None, "tag": None, "queued": started,
            "started": started, "finished": finished, "error": "it failed" if state == "failed" else None}
    return {**made, **more}


def message(sequence, op, peer, tag=0, state="done", bytes=16):
    return operation(sequence, op, state, peer=peer, tag=tag, bytes=bytes, reduce_op=None)


def dump(rank, size, operations, group_id="1-1", name="default", written=2000.0, **more):
    collectives = [one for one in operations if one["op"] not in ("send", "recv") and one["sequence"] is not None]
    begun = max((one["sequence"] for one in collectives), default=0)
    completed = max((one["sequence"] for one in collectives if one["state"] == "done"), default=0)
    group = {"number": 1, "id": group_id, "name": name, "rank": rank, "size": size, "global_ranks": [],
             "begun": begun, "completed": completed, "messages": 0, "ended": None, "failure": None}
    made = {"format": "taco-flight-record", "version": 1, "host": f"host{rank}", "pid": 100 + rank, "rank": rank,
            "reason": "asked", "written": written, "forgotten": 0, "groups": [group], "operations": operations}
    return _flight_files.parse(json.dumps({**made, **more}))


def findings(dumps, **options):
    report = explain_hang.explain(dumps, **options)
    explain_hang.render(report)
    json.dumps(explain_hang.as_json(report))
    return [finding for group in report.groups for finding in group.findings]


def test_in_step_is_no_finding():
    done = [operation(1), operation(2, "barrier")]
    assert findings([dump(rank, 3, done) for rank in range(3)]) == []


def test_who_is_behind():
    ahead = [operation(1), operation(2, "barrier"), operation(3, state="started")]
    late = [operation(1), operation(2, "barrier")]
    found = findings([dump(0, 3, ahead), dump(1, 3, late), dump(2, 3, ahead)])
    assert [(one.kind, one.ranks, one.operation) for one in found] == [("behind", [1], 3)]
    assert "Rank 1 is behind: it has not begun operation 3 (all_reduce(SUM) of 4 float32), in which ranks 0, 2 wait" \
        in found[0].text
    assert "Its last was operation 2 (barrier)" in found[0].text


def test_behind_from_the_start_and_in_another_group():
    other = {"number": 2, "id": "2-2", "name": "rows", "rank": 0, "size": 2, "global_ranks": [1, 2], "begun": 1,
             "completed": 0, "messages": 0, "ended": None, "failure": None}
    stuck = dump(1, 2, [operation(1, "broadcast", "started", group=2, root=0)])
    stuck["groups"].append(other)
    stuck["groups"][0].update(begun=0, completed=0)
    found = findings([dump(0, 2, [operation(1, state="failed")]), stuck])
    behind = [one for one in found if one.kind == "behind"]
    assert len(behind) == 1 and behind[0].ranks == [1]
    assert "It has begun no operation of this group." in behind[0].text
    assert "It is in broadcast of 4 float32 with root 0 of group 'rows'." in behind[0].text
    assert [one.ranks for one in found if one.kind == "missing"] == [[1]]  # of the group 'rows'


@pytest.mark.parametrize("other", [
    dict(op="barrier"), dict(count=5), dict(dtype="int64"), dict(reduce_op="MAX")], ids=str)
def test_ranks_that_do_different_things(other):
    first = [operation(1), operation(2, state="failed")]
    second = [operation(1), operation(2, state="failed", **other)]
    found = findings([dump(0, 3, first), dump(1, 3, second), dump(2, 3, first)])
    assert [(one.kind, one.operation) for one in found] == [("mismatch", 2)]
    assert "ranks 0, 2 in all_reduce(SUM) of 4 float32; rank 1 in" in found[0].text


def test_counts_of_gathers_may_differ():
    assert findings([dump(rank, 2, [operation(1, "gather", root=0, count=rank)]) for rank in (0, 1)]) == []


def test_a_rank_that_came_too_late():
    on_time = [operation(5, state="failed", started=1000.0, finished=1003.0)]
    late = [operation(5, state="failed", started=1040.0, finished=1040.1)]
    found = findings([dump(0, 2, on_time), dump(1, 2, late)])
    assert [(one.kind, one.ranks) for one in found] == [("late", [1])]
    assert "40.0 s after the first" in found[0].text


def test_missing_dumps():
    found = findings([dump(rank, 8, [operation(1, state="started")]) for rank in (0, 2)])
    assert [(one.kind, one.ranks) for one in found] == [("missing", [1, 3, 4, 5, 6, 7]), ("together", [0, 2])]
    assert "ranks 1, 3-7 (8 ranks in all)" in found[0].text


def test_messages_that_fit():
    assert findings([dump(0, 2, [message(1, "send", 1), message(2, "recv", 1, tag=4)]),
                     dump(1, 2, [message(1, "recv", 0), message(2, "send", 0, tag=4)])]) == []


def test_sends_without_receives_and_receives_without_sends():
    found = findings([dump(0, 2, [message(1, "send", 1, tag=3), message(2, "send", 1, tag=3)]),
                      dump(1, 2, [message(1, "recv", 0, tag=3), message(2, "recv", 0, tag=5, state="started")])])
    assert [(one.kind, one.ranks) for one in found] == [("send", [0, 1]), ("receive", [0, 1])]
    assert "Rank 0 has sent a message to rank 1 with tag 3" in found[0].text and "tag 5" in found[0].text
    assert "Rank 1 has posted 1 receive(s) from rank 0 with tag 5" in found[1].text and "tag 3" in found[1].text


def test_a_receive_from_any_rank_may_take_a_message():
    found = findings([dump(0, 2, [message(1, "send", 1)]), dump(1, 2, [message(1, "recv", -1, state="started")])])
    assert found == []


def test_sizes_of_messages():
    found = findings([dump(0, 2, [message(1, "send", 1, bytes=8)]),
                      dump(1, 2, [message(1, "recv", 0, bytes=12, state="failed")])])
    assert [one.kind for one in found] == ["size"] and "8 bytes" in found[0].text and "12 bytes" in found[0].text


def test_what_was_forgotten_is_no_lost_message():
    sends = dump(0, 2, [message(9, "send", 1)], forgotten=7)
    assert findings([sends, dump(1, 2, [])]) == []
    sends = dump(0, 2, [message(9, "send", 1, state="started")], forgotten=7)
    assert [one.kind for one in findings([sends, dump(1, 2, [])])] == ["send"]


def test_other_jobs_are_left_out():
    old = [dump(rank, 2, [operation(1, state="failed")], group_id="old", written=10.0) for rank in (0, 1)]
    new = [dump(rank, 2, [operation(1)], group_id="new") for rank in (0, 1)]
    assert findings(old + new) == []
    assert any("2 older dump(s)" in note for note in explain_hang.explain(old + new).notes)
    assert findings(old + new, all_jobs=True)


def test_global_ranks_are_named():
    dumps = [dump(0, 2, [operation(1, state="started")]), dump(1, 2, [])]
    for one in dumps:
        one["groups"][0]["global_ranks"] = [4, 6]
    assert "Rank 1 (global rank 6) is behind" in findings(dumps)[0].text


# --- files ----------------------------------------------------------------------------------------


def test_command(tmp_path, capsys):
    for rank, state in enumerate(("started", "done")):
        (tmp_path / f"rank-{rank}-h-1.json").write_text(json.dumps(dump(rank, 2, [operation(1), operation(2)][:2 - rank]
                                                                        if state == "done" else
                                                                        [operation(1), operation(2, state=state)])))
    assert cli.main(["explain-hang", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "Rank 1 is behind" in text and "host1:101" in text
    assert cli.main(["explain-hang", "--json", str(tmp_path)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["groups"][0]["findings"][0]["kind"] == "behind"
    assert [one["begun"] for one in report["groups"][0]["ranks"]] == [2, 1]
    (tmp_path / "rank-0-h-1.json").unlink()
    (tmp_path / "rank-1-h-1.json").unlink()
    assert cli.main(["explain-hang", str(tmp_path)]) == 2
    assert "no flight record" in capsys.readouterr().err
    assert cli.main(["explain-hang", str(tmp_path / "nowhere")]) == 2


def test_files_that_are_no_dumps_are_named_and_left_out(tmp_path):
    whole = json.dumps(dump(0, 2, [operation(1)]))
    broken = {"truncated": whole[:-20], "foreign": '{"a": 1}', "list": "[]", "empty": "", "binary": "\0\1",
              "deep": "[" * 100000, "newer": whole.replace('"version": 1', '"version": 2'),
              "wrong": whole.replace('"size": 2', '"size": "2"'), "huge": whole.replace('"size": 2', '"size": 1e9'),
              "rank": whole.replace('"rank": 0, "size"', '"rank": 7, "size"'),
              "state": whole.replace('"done"', '"asleep"')}
    for name, text in broken.items():
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "good.json").write_text(whole)
    (tmp_path / "notes.txt").write_text("not looked at")
    dumps, troubles = _flight_files.load(tmp_path)
    assert len(dumps) == 1
    assert sorted(trouble.split(".json")[0] for trouble in troubles) == sorted(broken)


def test_mutated_dumps_raise_nothing_else():
    """Whatever a file says: it is refused by NotADump, or explained."""
    seed = int(os.environ.get("DUMP_FUZZ_SEED", "20261130"))
    generator = random.Random(seed)
    base = [dump(0, 2, [operation(1), message(1, "send", 1), operation(2, state="started")]),
            dump(1, 2, [operation(1), message(1, "recv", -1, state="started")])]
    values = [None, True, -1, 0, 1, 2, 1e300, float("nan"), 10 ** 30, "", "x", [], {}, [1], "done", "send"]
    explained = refused = 0
    for case in range(int(os.environ.get("DUMP_FUZZ_CASES", "1500"))):
        dumps = copy.deepcopy(base)
        for _ in range(generator.randint(1, 3)):
            target = generator.choice(dumps)
            target = generator.choice([target, generator.choice(target["groups"] + target["operations"])])
            key = generator.choice(list(target))
            if isinstance(target[key], list):
                continue  # the groups and operations stay, to be chosen again
            if generator.random() < 0.1 and len(target) > 1:
                del target[key]
            else:
                target[key] = generator.choice(values)
        try:
            parsed = [_flight_files.parse(json.dumps(one)) for one in dumps]
        except _flight_files.NotADump:
            refused += 1
            continue
        try:
            findings(parsed)
        except Exception as error:
            raise AssertionError(f"seed {seed}, case {case}: {json.dumps(dumps)}") from error
        explained += 1
    assert explained > 50 and refused > 50


# --- real ranks -----------------------------------------------------------------------------------


def absent(rank, world, folder):
    """Two operations together; in the third, rank 1 does not come."""
    group = failing.group_of_all(2.0)
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(10), group=group)
    dist.barrier(group=group)
    others = [f"failed {other}" for other in range(world) if other != 1]
    if rank == 1:
        store.wait(others)
        return torch_taco.dump(folder)
    text = failing.failure(lambda: dist.all_reduce(torch.ones(20), group=group), 2.0 + failing.SLACK_SECONDS)
    store.set(f"failed {rank}", "yes")
    return text


def test_a_rank_that_does_not_come_is_named(tmp_path, capsys):
    folder = tmp_path / "dumps"
    outcomes = ranks.run(absent, 3, str(folder), env={"TACO_DUMP_DIR": str(folder)})
    files = sorted(folder.glob("*.json"))
    assert [path.name.split("-")[1] for path in files] == ["0", "1", "2"]
    assert outcomes[1].value == str(files[1])
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert f"taco explain-hang {folder}" in outcomes[0].stderr
    assert cli.main(["explain-hang", str(folder)]) == 1
    text = capsys.readouterr().out
    assert "Rank 1 is behind: it has not begun operation 3 (all_reduce(SUM) of 20 float32), in which ranks 0, 2 wait." \
        in text
    assert "Its last was operation 2 (barrier), done at" in text


def another_way(rank, world):
    group = failing.group_of_all(20.0)
    dist.all_reduce(torch.ones(10), group=group)
    call = (lambda: dist.barrier(group=group)) if rank == 1 else (lambda: dist.all_reduce(torch.ones(7), group=group))
    failing.failure(call, 20.0)


def test_ranks_that_go_another_way_are_named(tmp_path, capsys):
    ranks.run(another_way, 2, env={"TACO_DUMP_DIR": str(tmp_path), "TACO_SHM": "0"})
    assert cli.main(["explain-hang", "--json", str(tmp_path)]) == 1
    report = json.loads(capsys.readouterr().out)
    texts = [finding["text"] for group in report["groups"] for finding in group["findings"]]
    assert texts == ["At operation 2 the ranks do different things: rank 0 in all_reduce(SUM) of 7 float32; rank 1 in "
                     "barrier."]


def while_it_hangs(rank, world, folder):
    """A signal has a rank write its record while it is inside an operation."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        hanging = int(store.get("pid"))
        path = None
        deadline = time.monotonic() + 30
        while not path and time.monotonic() < deadline:
            os.kill(hanging, signal.SIGUSR2)
            time.sleep(0.1)
            path = next((name for name in os.listdir(folder) if name.startswith("rank-0-")), None)
        dist.barrier()
        return path and json.loads(open(os.path.join(folder, path)).read())
    torch_taco.dump_on_signal(signal.SIGUSR2, folder)
    store.set("pid", str(os.getpid()))
    dist.barrier()
    return None


def test_dump_on_signal(tmp_path):
    found = ranks.run(while_it_hangs, 2, str(tmp_path))[1].value
    assert found["rank"] == 0 and found["reason"] == "torch_taco.dump() was called"


def without_a_place(rank, world):
    with pytest.raises(ValueError, match="TACO_DUMP_DIR is 'none'"):
        torch_taco.dump()


def test_none_needs_a_path():
    ranks.run(without_a_place, 1, init=False, env={"TACO_DUMP_DIR": "none"})
