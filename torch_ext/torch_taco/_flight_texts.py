"""How the operations and ranks of flight records are written for people."""

import datetime

# Operations whose count is the same on all ranks; of the others every rank has its own.
COUNT_AGREES = ("broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter", "shared_empty")


def describe(operation):
    """all_reduce(SUM) of 1024 float32"""
    text = operation["op"]
    if operation["op"] in ("send", "recv"):
        way = "to" if operation["op"] == "send" else "from"
        peer = "any rank" if operation["peer"] == -1 else f"rank {operation['peer']}"
        return f"{text} of {operation['bytes']} bytes {way} {peer} with tag {operation['tag']}"
    if operation["reduce_op"]:
        text += f"({operation['reduce_op']})"
    if operation["op"] in COUNT_AGREES:
        text += f" of {operation['count']} {operation['dtype']}"
    elif operation["op"] != "barrier":
        text += f" of {operation['dtype']}"
    if operation["root"] is not None:
        text += f" with root {operation['root']}"
    return text


def named(sequence, operation):
    return f"operation {sequence} ({describe(operation)})" if operation else f"operation {sequence}"


def ranks_text(ranks):
    """rank 1 / ranks 0, 2-5"""
    ranks = sorted(ranks)
    parts, at = [], 0
    while at < len(ranks):
        end = at + 1
        while end < len(ranks) and ranks[end] == ranks[end - 1] + 1:
            end += 1
        run = ranks[at:end]
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
        at = end
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(parts)}"


def capital(text):
    return text[0].upper() + text[1:]


def clock(seconds):
    try:
        return datetime.datetime.fromtimestamp(seconds).strftime("%H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):  # a time that no calendar has
        return f"{seconds:g}"
