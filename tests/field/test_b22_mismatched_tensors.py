"""B22 (nccl#1394, pytorch#174844): ranks that disagreed on a size or dtype hung, or mixed up memory.

Every rank gets an error that says what both sides were doing; nothing is written past a buffer; a group made
afterwards works.
"""

import pytest
import torch
import torch.distributed as dist

import failing
import operations
import ranks

TIMEOUT = 6.0
GUARD = 64


def guarded(tensor):
    """The same tensor inside a larger one, so that a write past its end shows."""
    base = torch.zeros(tensor.numel() + 2 * GUARD, dtype=tensor.dtype)
    view = base[GUARD:GUARD + tensor.numel()].reshape(tensor.shape)
    view.copy_(tensor)
    return view, lambda: not base[:GUARD].any() and not base[GUARD + tensor.numel():].any()


def disagree(rank, world, name, mine, others, wrong_rank):
    """One operation in which one rank brings other tensors; then a new group is as good as ever."""
    operation = operations.OPERATIONS[name]
    shape, dtype = mine if rank == wrong_rank else others
    group = failing.group_of_all(TIMEOUT)
    case = operations.Case(rank, world, shape, dtype, group=group)
    inputs, outputs = operation.buffers(case)
    guards = [guarded(tensor) for tensor in inputs + outputs]
    views = [view for view, _ in guards]

    def call():
        for work in operation.issue(case, views[:len(inputs)], views[len(inputs):], False):
            work.wait()
        # Who had no part in the exchange that failed learns of it at the next operation at the latest.
        dist.barrier(group=group)

    text = failing.failure(call, TIMEOUT + failing.SLACK_SECONDS)
    assert all(check() for _, check in guards), "memory beside a tensor was written"
    for one_shape, one_dtype in (mine, others):
        if mine[1] is not others[1]:
            assert str(one_dtype)[6:] in text, text
            continue
        count = torch.empty(one_shape).numel()
        # In elements or bytes; of the tensor, of all ranks' parts, of the two tensors of a coalesced call.
        sizes = [count * parts * unit for parts in (1, 2, world, 2 * world) for unit in (1, one_dtype.itemsize)]
        assert any(failing.names_number(text, size) for size in sizes), f"{sizes} are not in: {text}"
    again = failing.group_of_all(60.0)
    operation.run(operations.Case(rank, world, (9,), group=again))
    dist.destroy_process_group(again)


def all_disagreements(rank, world, name, pairs):
    for mine, others in pairs:
        for wrong_rank in {0, world - 1}:
            disagree(rank, world, name, mine, others, wrong_rank)


SIZES = [(((100,), torch.float32), ((200,), torch.float32)),
         (((200,), torch.float32), ((100,), torch.float32)),
         (((409600,), torch.float32), ((409598,), torch.float32)),
         (((3, 4), torch.float32), ((), torch.float32))]
DTYPES = [(((100,), torch.float64), ((100,), torch.float32)),
          (((1000,), torch.int32), ((1000,), torch.float32))]
POINT_TO_POINT = ("send_recv", "batch_isend_irecv")


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_sizes(layout, name):
    if name in POINT_TO_POINT:
        ranks.run(point_to_point_sizes, layout.world, name, env=layout.env)
    else:
        ranks.run(all_disagreements, layout.world, name, SIZES, env=layout.env)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("name", [name for name in operations.OPERATIONS if name not in POINT_TO_POINT])
def test_dtypes(layout, name):
    ranks.run(all_disagreements, layout.world, name, DTYPES, env=layout.env)


def point_to_point_sizes(rank, world, name):
    """A message of another size than the receive: the receiver must say so. The sender cannot know: a small
    message is on its way before anybody asks for it."""
    for sent, wanted in [(100, 200), (200, 100), (409600, 409598), (1, 0)]:
        group = failing.group_of_all(TIMEOUT)
        if rank == 0:
            try:
                dist.send(torch.ones(sent), world - 1, group=group)
            except RuntimeError as error:
                assert failing.names_rank(str(error), world - 1), error
        elif rank == world - 1:
            base = torch.zeros(wanted + 2 * GUARD)
            into = base[GUARD:GUARD + wanted]
            if name == "send_recv":
                receive = lambda: dist.recv(into, 0, group=group)  # noqa: E731
            else:
                receive = lambda: [work.wait() for work in dist.batch_isend_irecv(  # noqa: E731
                    [dist.P2POp(dist.irecv, into, 0, group=group)])]
            text = failing.failure(receive, TIMEOUT + failing.SLACK_SECONDS)
            for size in (sent, wanted):
                assert failing.names_number(text, size) or failing.names_number(text, size * 4), (size, text)
            assert not base[:GUARD].any() and not base[GUARD + wanted:].any()
        dist.barrier()
        again = failing.group_of_all(60.0)
        operations.OPERATIONS[name].run(operations.Case(rank, world, (9,), group=again))
        dist.destroy_process_group(again)
