"""docs/operations.md: which operation works with which dtype and reduction, found by calling all of them.

`make docs` writes it (python tests/torch/operations_table.py); tests/field/test_b49 holds it to the code.
"""

import contextlib
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import operations  # noqa: E402

PATH = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "operations.md"

HEAD = """# Operations and dtypes

<!-- Written by tests/torch/operations_table.py, which calls everything below on two ranks. Do not edit:
     `make docs` writes it anew, and tests/field/test_b49_operations_table.py compares. -->

Tensors on the CPU, of any shape and memory layout: strided, channels-last, of no dimension, without elements,
of more than 2^31 elements; an output may alias the input. "All" dtypes are the floats (float32, float64, float16,
bfloat16), complex64, complex128, the integers (8, 16, 32, 64 bits, signed and unsigned), bool, and float8 in all its
kinds, which is moved but not computed with. float16 and bfloat16 add up in float32 and round once
a level (node, network). Whatever is not listed is an error that names the operation and the dtype, raised before
anything is sent.

"""


def works(operation, case):
    """Whether the call gives the right result. A refusal is the only other outcome: a wrong result raises."""
    try:
        operation.run(case)
        return True
    except AssertionError:
        raise
    except (RuntimeError, ValueError, TypeError):
        return False


def probe(rank, world):
    """(moving, reducing): {operation: [dtypes]}, {operation: {reduction: [dtypes]}}. Every rank gets the same
    refusals, none of which touches the group."""
    moving, reducing = {}, {}
    for operation in operations.OPERATIONS.values():
        if not operation.reduces:
            moving[operation.name] = [name_of(dtype) for dtype in operations.DTYPES
                                      if works(operation, operations.Case(rank, world, (6,), dtype))]
            continue
        found = reducing[operation.name] = {}
        for reduction in operations.REDUCTIONS:
            found[reduction] = [name_of(dtype) for dtype in operations.DTYPES
                                if works(operation, operations.Case(rank, world, (6,), dtype, reduction))]
    return moving, reducing


def others(rank, world):
    """The operations that have no dtype column: {call: whether it works}."""
    import torch_taco

    peer = 1 - rank

    def sparse():
        tensor = torch.sparse_coo_tensor([[rank, 2]], [1.0, 2.0], (4,))
        dist.all_reduce(tensor)
        assert tensor.to_dense().tolist() == [1.0, 1.0, 4.0, 0.0]

    def uneven_gather():
        outs = [torch.zeros(1), torch.zeros(2)]
        dist.all_gather(outs, torch.ones(rank + 1))
        assert torch.cat(outs).tolist() == [1.0] * 3

    def uneven_exchange():
        out = torch.zeros(1 + 2 * rank)
        dist.all_to_all_single(out, torch.ones(1 + 2 * rank), [rank, 1 + rank], [rank, 1 + rank])

    def any_source():
        if rank == 0:
            out = torch.zeros(1)
            assert dist.recv(out) == 1 and out.item() == 5
        else:
            dist.send(torch.full((1,), 5.0), 0)

    def tags():
        works = [dist.isend(torch.ones(1) * tag, peer, tag=tag) for tag in (1, 2)]
        for tag in (2, 1):
            out = torch.zeros(1)
            dist.recv(out, peer, tag=tag)
            assert out.item() == tag
        for work in works:
            work.wait()

    def objects():
        found = [None, None]
        dist.all_gather_object(found, {"rank": rank})
        assert found == [{"rank": 0}, {"rank": 1}]
        lists = [[rank], None]
        dist.broadcast_object_list(lists, 0)
        assert lists[0] == [0]
        dist.gather_object(rank, [None, None] if rank == 0 else None, 0)
        out = [None]
        dist.scatter_object_list(out, ["a", "b"] if rank == 0 else None, 0)
        assert out == ["ab"[rank]]

    calls = {
        "all_reduce of sparse COO tensors, SUM": sparse,
        "all_gather of different sizes on different ranks": uneven_gather,
        "all_to_all_single with split sizes": uneven_exchange,
        "recv from any source": any_source,
        "send and recv with tags": tags,
        "broadcast_object_list, gather_object, scatter_object_list, all_gather_object": objects,
        "barrier": dist.barrier,
        "torch_taco.monitored_barrier": torch_taco.monitored_barrier,
    }
    found = {}
    for name, call in calls.items():
        found[name] = True
        with contextlib.suppress(RuntimeError, ValueError, TypeError):
            call()
            continue
        found[name] = False
    return found


def name_of(dtype):
    return str(dtype)[6:]


def grouped(names):
    """Dtype names in words: families where all of one are there."""
    if names == [name_of(dtype) for dtype in operations.DTYPES]:
        return "all"
    left, parts = list(names), []
    families = {"complex64, complex128": operations.COMPLEX, "all integers": operations.INTEGERS,
                "float8 of all kinds": operations.OPAQUE}
    floats = [name_of(dtype) for dtype in operations.FLOATS]
    if all(name in left for name in floats):
        parts.append("all floats")
        left = [name for name in left if name not in floats]
    for title, family in families.items():
        wanted = [name_of(dtype) for dtype in family]
        if all(name in left for name in wanted):
            parts.append(title)
            left = [name for name in left if name not in wanted]
    return ", ".join(parts + left) or "none"


def alike(found):
    """Operations with the same findings together: [([names], findings)]."""
    groups = []
    for name, one in found.items():
        for names, other in groups:
            if one == other:
                names.append(name)
                break
        else:
            groups.append(([name], one))
    return groups


def text(moving, reducing, other):
    lines = [HEAD + "## Moving data", "", "| operations | dtypes |", "|---|---|"]
    lines += [f"| {', '.join(names)} | {grouped(dtypes)} |" for names, dtypes in alike(moving)]
    lines += ["", "## Reducing"]
    for names, found in alike(reducing):
        lines += ["", f"{', '.join(names)}:", "", "| reduction | dtypes |", "|---|---|"]
        lines += [f"| {reduction} | {grouped(dtypes)} |" for reduction, dtypes in found.items()]
    lines += ["", "torch's own all_reduce refuses complex tensors for everything but SUM, AVG and PREMUL_SUM.",
              "", "## The rest", "", "| call | works |", "|---|---|"]
    lines += [f"| {name} | {'yes' if found else 'no'} |" for name, found in other.items()]
    return "\n".join(lines) + "\n"


def main():
    import ranks

    def everything(rank, world):
        return *probe(rank, world), others(rank, world)

    PATH.write_text(text(*ranks.run(everything, 2)[0].value))
    print(f"wrote {PATH}")


if __name__ == "__main__":
    main()
