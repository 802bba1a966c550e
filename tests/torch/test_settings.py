"""Settings come from the environment; what is unknown, malformed or different between ranks is an error on all."""

import pytest
import torch
import torch.distributed as dist

import failing
import operations
import ranks

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests the settings of taco: TEST_BACKEND is set")

VALID = ["LIGHT_2D_ALLREDUCE", "LIGHT_INTRA_SIZE", "LIGHT_HIERARCHICAL_THRESHOLD", "TACO_SHM", "TACO_NODE_ID",
         "TACO_LOG", "TACO_SOCKET_IFNAME"]


def init_fails(rank, world):
    return failing.failure(lambda: ranks.init_group(timeout=20.0), 15.0, (RuntimeError, ValueError))


@pytest.mark.parametrize("name", ["LIGHT_INTRASIZE", "TACO_SHIM", "LIGHT_TOPK_RATIOS"])
def test_unknown(name):
    for outcome in ranks.run(init_fails, 2, init=False, env={name: "1"}):
        assert name in outcome.value
        for valid in VALID:
            assert valid in outcome.value, outcome.value


MALFORMED = [("LIGHT_2D_ALLREDUCE", "yes"), ("LIGHT_2D_ALLREDUCE", "2"), ("LIGHT_INTRA_SIZE", "0"),
             ("LIGHT_INTRA_SIZE", "-4"), ("LIGHT_INTRA_SIZE", "2x"), ("LIGHT_HIERARCHICAL_THRESHOLD", "1GB"),
             ("LIGHT_HIERARCHICAL_THRESHOLD", "99999999999999999999999"), ("TACO_SHM", "on"),
             ("TACO_LOG", "loud"), ("LIGHT_INTRA_SIZE", " 2")]


@pytest.mark.parametrize("name, value", MALFORMED)
def test_malformed(name, value):
    for outcome in ranks.run(init_fails, 2, init=False, env={name: value}):
        assert name in outcome.value and value in outcome.value, outcome.value


DIFFERENT = [("LIGHT_2D_ALLREDUCE", "0", "1"), ("LIGHT_INTRA_SIZE", "2", "1"), ("TACO_SHM", "1", "0"),
             ("LIGHT_HIERARCHICAL_THRESHOLD", "1000", "2000"), ("LIGHT_INTRA_SIZE", "2", None)]


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name, first, last", DIFFERENT)
def test_different(world, name, first, last):
    def env(rank):
        value = last if rank == world - 1 else first
        return {} if value is None else {name: value}

    for outcome in ranks.run(init_fails, world, init=False, env=env):
        assert name in outcome.value, outcome.value
        for value in (first, last):
            assert value is None or value in outcome.value, outcome.value


def one_rank_malformed(rank, world):
    return failing.failure(lambda: ranks.init_group(timeout=10.0), 12.0, (RuntimeError, ValueError))


@pytest.mark.parametrize("name, value", [("LIGHT_INTRA_SIZE", "many"), ("TACO_TYPO", "1")])
def test_wrong_on_one_rank_is_an_error_on_all(name, value):
    outcomes = ranks.run(one_rank_malformed, 3, init=False, env=lambda rank: {name: value} if rank == 2 else {})
    assert name in outcomes[2].value
    for outcome in outcomes[:2]:
        assert name in outcome.value or failing.names_rank(outcome.value, 2), outcome.value


def sums(rank, world):
    for numel in (1, 1000, 300_000):
        operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (numel,)))


VALID_VALUES = [{"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "2"}, {"LIGHT_2D_ALLREDUCE": "0"},
                {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "3"}, {"LIGHT_INTRA_SIZE": "1"},
                {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "2", "LIGHT_HIERARCHICAL_THRESHOLD": "4000"},
                {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "2", "TACO_SHM": "0"},
                {"LIGHT_INTRA_SIZE": "8"}, {"LIGHT_INTRA_SIZE": ""}, {"TACO_LOG": "debug"}]


@pytest.mark.parametrize("settings", VALID_VALUES, ids=str)
@pytest.mark.parametrize("world", [3, 4])
def test_valid(world, settings):
    ranks.run(sums, world, env=settings)


def plan(rank, world, nbytes):
    import torch_taco

    return [torch_taco.explain(n, torch.float32).algorithm for n in nbytes]


def algorithms(layout_env, settings, nbytes, world=4):
    outcomes = ranks.run(plan, world, nbytes, env=lambda rank: {**layout_env(rank), **settings})
    assert all(outcome.value == outcomes[0].value for outcome in outcomes)
    return ["2d" if "2d" in name.lower() else name.lower() for name in map(str, outcomes[0].value)]


def test_threshold_is_inclusive():
    """LIGHT_HIERARCHICAL_THRESHOLD: 2D up to and including so many bytes."""
    two_nodes = ranks.Layout("2x2", 4, nodes=2).env
    found = algorithms(two_nodes, {"LIGHT_HIERARCHICAL_THRESHOLD": "4096"}, [4092, 4096, 4100])
    assert found == ["2d", "2d", "flat"]


def test_two_dimensional_choice():
    """0 off, 1 on, unset: where the grid has two nodes of two ranks."""
    two_nodes, one_node = ranks.Layout("2x2", 4, nodes=2).env, ranks.Layout("1x4", 4).env
    assert algorithms(two_nodes, {}, [1 << 20]) == ["2d"]
    assert algorithms(two_nodes, {"LIGHT_2D_ALLREDUCE": "1"}, [1 << 20]) == ["2d"]
    assert algorithms(two_nodes, {"LIGHT_2D_ALLREDUCE": "0"}, [1 << 20]) == ["flat"]
    assert algorithms(one_node, {}, [1 << 20]) == ["flat"]
    assert algorithms(one_node, {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "2"}, [1 << 20]) == ["2d"]


def quiet_or_not(rank, world):
    dist.all_reduce(torch.ones(10))


def test_log():
    """info prints the grid once per group; the default prints nothing."""
    for outcome in ranks.run(quiet_or_not, 2):
        assert outcome.stderr == "", outcome.stderr
    outcomes = ranks.run(quiet_or_not, 4, env=lambda rank: {"TACO_LOG": "info", "TACO_NODE_ID": str(rank // 2)})
    text = "".join(outcome.stderr for outcome in outcomes)
    assert "2 nodes" in text or "2 x 2" in text, text
