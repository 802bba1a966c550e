"""`taco explain-hang DIR`: which rank is behind, and at which operation, by the flight records of all ranks.

Every process writes its last operations down when a group of it fails, and on torch_taco.dump(). The operations of a
group are numbered in the same way on all its ranks, so the records can be laid side by side: who has begun fewer
operations than the others is behind, and who is in one with the same number but another description has gone
another way.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

from torch_taco._flight_files import load
from torch_taco._flight_messages import explain_messages
from torch_taco._flight_texts import COUNT_AGREES, capital, clock, describe, named, ranks_text


@dataclasses.dataclass
class Member:
    """One rank of one group, as its dump tells of it."""

    dump: dict
    group: dict
    operations: dict  # sequence -> the collective
    messages: list  # sends and receives, in order

    @property
    def begun(self):
        return self.group["begun"]

    @property
    def is_inside(self):
        """Has it begun an operation that it has not completed?"""
        return self.group["completed"] < self.begun

    @property
    def current(self):
        return self.operations.get(self.begun)

    @property
    def name(self):
        rank, known = self.group["rank"], self.group["global_ranks"]
        if rank < len(known) and known[rank] != rank:
            return f"rank {rank} (global rank {known[rank]})"
        return f"rank {rank}"


@dataclasses.dataclass
class Finding:
    kind: str  # missing, mismatch, behind, late, together, send, receive, size
    text: str
    ranks: list  # whom it is about
    operation: int = None  # the number of the collective


@dataclasses.dataclass
class GroupReport:
    id: str
    name: str
    size: int
    members: dict  # rank -> Member
    findings: list


@dataclasses.dataclass
class Report:
    groups: list
    notes: list

    @property
    def found(self):
        return any(group.findings for group in self.groups)


def explain(dumps, troubles=(), all_jobs=False):
    """The report on loaded dumps (see _flight_files). Of several jobs, or attempts of one, the last to write counts."""
    notes = list(troubles)
    if not all_jobs:
        dumps, left_out = newest_job(dumps)
        if left_out:
            notes.append(f"{left_out} older dump(s) of other jobs, or attempts, in this folder are left out (--all "
                         "shows them)")
    members = {}
    for dump in dumps:
        for group in dump["groups"]:
            if group["size"] > 1:
                of_group = members.setdefault(group["id"], {})
                there = of_group.get(group["rank"])
                if there is None or there.dump["written"] <= dump["written"]:
                    of_group[group["rank"]] = _member(dump, group)
    reports = [_explain_group(group_id, dict(sorted(ranks.items()))) for group_id, ranks in members.items()]
    reports.sort(key=lambda report: (not report.findings, -report.size, report.name))
    written = [dump["written"] for dump in dumps]
    if written and max(written) - min(written) > 5 and not any(report.findings for report in reports):
        notes.append(f"the dumps were written within {max(written) - min(written):.0f} s: what ran meanwhile may look "
                     "like a difference between ranks")
    return Report(reports, notes)


def newest_job(dumps):
    """The dumps that share groups, directly or through others, with the newest; and how many do not."""
    if not dumps:
        return [], 0
    ids = {id(dump): {group["id"] for group in dump["groups"]} for dump in dumps}
    newest = max(dumps, key=lambda dump: dump["written"])
    chosen, known, grows = [newest], set(ids[id(newest)]), True
    while grows:
        grows = False
        for dump in dumps:
            if not any(dump is one for one in chosen) and known & ids[id(dump)]:
                chosen.append(dump)
                known |= ids[id(dump)]
                grows = True
    return [dump for dump in dumps if any(dump is one for one in chosen)], len(dumps) - len(chosen)


def _member(dump, group):
    own = [one for one in dump["operations"] if one["group"] == group["number"] and one["op"] is not None]
    messages = [one for one in own if one["op"] in ("send", "recv")]
    collectives = {one["sequence"]: one for one in own if one["op"] not in ("send", "recv")}
    return Member(dump, group, collectives, messages)


# --- one group ------------------------------------------------------------------------------------


def _explain_group(group_id, members):
    first = next(iter(members.values()))
    size, name = first.group["size"], first.group["name"]
    findings = []
    missing = sorted(set(range(size)) - set(members))
    if missing:
        findings.append(Finding("missing", f"There is no dump of {ranks_text(missing)} ({size} ranks in all): killed, "
                                "or not asked to write one, or its file is still on another host.", missing))
    differing = _mismatch(members)
    if differing:
        findings.append(differing)
    else:
        findings += _who_is_behind(members)
    findings += [Finding(*found) for found in explain_messages(members)]
    return GroupReport(group_id, name, size, members, findings)


def _mismatch(members):
    """The first operation that ranks disagree about."""
    for sequence in sorted({sequence for member in members.values() for sequence in member.operations}):
        ways = {}
        for rank, member in members.items():
            if sequence in member.operations:
                ways.setdefault(_signature(member.operations[sequence]), []).append(rank)
        if len(ways) > 1:
            parts = [f"{ranks_text(ranks)} in {describe(members[ranks[0]].operations[sequence])}"
                     for ranks in ways.values()]
            return Finding("mismatch", f"At operation {sequence} the ranks do different things: {'; '.join(parts)}.",
                           sorted(sum(ways.values(), [])), sequence)
    return None


def _signature(operation):
    count = operation["count"] if operation["op"] in COUNT_AGREES else None
    return operation["op"], operation["dtype"], operation["reduce_op"], operation["root"], count


def _who_is_behind(members):
    inside = {rank: member for rank, member in members.items() if member.is_inside}
    if not inside:
        return []
    top = max(member.begun for member in inside.values())
    waiting = [rank for rank, member in inside.items() if member.begun == top]
    what = named(top, members[waiting[0]].current)
    behind = {rank: member for rank, member in members.items() if member.begun < top}
    found = []
    for rank, member in sorted(behind.items(), key=lambda item: item[1].begun):
        found.append(Finding("behind", f"{capital(member.name)} is behind: it has not begun {what}, in which "
                             f"{ranks_text(waiting)} wait{'s' if len(waiting) == 1 else ''}. {_where(member)}", [rank],
                             top))
    if not behind and len(members) == len(inside):
        found += _lateness(members, top, what)
    return found


def _where(member):
    """What a rank that is behind was doing."""
    if member.is_inside:
        text = f"It is still in {named(member.begun, member.current)}."
    elif member.begun == 0:
        text = "It has begun no operation of this group."
    else:
        last = member.current
        ended = f", done at {clock(last['finished'])}" if last and last["finished"] else ""
        text = f"Its last was {named(member.begun, last)}{ended}."
    elsewhere = [one for one in member.dump["operations"]
                 if one["state"] == "started" and one["group"] != member.group["number"] and one["op"] is not None]
    for one in elsewhere[-1:]:
        names = [group["name"] for group in member.dump["groups"] if group["number"] == one["group"]]
        text += f" It is in {describe(one)} of group '{names[0] if names else '?'}'."
    return text


def _lateness(members, top, what):
    """All are in the same operation: did they meet there?"""
    gave_up = [member.current["finished"] for member in members.values()
               if member.current and member.current["state"] == "failed" and member.current["finished"]]
    started = {rank: member.current["started"] for rank, member in members.items()
               if member.current and member.current["started"]}
    late = [rank for rank, at in started.items() if gave_up and at > min(gave_up)]
    found = []
    for rank in late:
        seconds = started[rank] - min(started.values())
        found.append(Finding("late", f"{capital(members[rank].name)} came to {what} {seconds:.1f} s after the first, "
                             "when others had given it up already (by the clocks of the hosts).", [rank], top))
    if not found:
        found.append(Finding("together", f"All ranks of which there is a dump are in {what}: they wait for a rank "
                             "without a dump, or for the network.", sorted(members), top))
    return found


# --- the report -----------------------------------------------------------------------------------


def render(report):
    """The report for people: sentences first, then a table."""
    lines = []
    for group in report.groups:
        lines.append(f"group '{group.name}', {group.size} ranks, {len(group.members)} dump(s)")
        lines += [f"  {finding.text}" for finding in group.findings]
        if not group.findings:
            lines.append("  Nothing is wrong: all ranks have done the same, and none waits.")
        lines.append("")
        lines += [f"  {line}" for line in _table(group)] + [""]
    if not report.groups:
        lines += ["There is no group of several ranks in these dumps.", ""]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines).rstrip() + "\n"


def _table(group):
    rows = [("rank", "process", "operation", "state", "begun at", "ended at", "waiting behind it", "why it failed")]
    for rank, member in group.members.items():
        current = member.current
        behind = [one for one in member.dump["operations"]
                  if one["group"] == member.group["number"] and one["state"] == "queued"]
        reason = (current["error"] if current else None) or member.group["failure"] or ""
        rows.append((
            str(rank), f"{member.dump['host']}:{member.dump['pid']}",
            f"{member.begun} {describe(current)}" if current else f"{member.begun}" if member.begun else "none yet",
            current["state"] if current else "",
            clock(current["started"]) if current and current["started"] else "",
            clock(current["finished"]) if current and current["finished"] else "",
            str(len(behind)), reason if len(reason) <= 100 else reason[:97] + "..."))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def as_json(report):
    """The report for programs."""
    return {"notes": report.notes, "groups": [
        {"id": group.id, "name": group.name, "size": group.size,
         "findings": [dataclasses.asdict(finding) for finding in group.findings],
         "ranks": [{"rank": rank, "host": member.dump["host"], "pid": member.dump["pid"], "begun": member.begun,
                    "completed": member.group["completed"], "operation": member.current,
                    "failure": member.group["failure"]} for rank, member in group.members.items()]}
        for group in report.groups]}


def main(arguments):
    """The command; returns 0 when nothing is wrong, 1 when something is, 2 when there is nothing to look at."""
    parser = argparse.ArgumentParser(prog="taco explain-hang", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", help="the folder with the dumps of all ranks (rank-*.json)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--all", action="store_true", help="also older jobs that have left dumps in the folder")
    options = parser.parse_args(arguments)
    if not pathlib.Path(options.folder).is_dir():
        print(f"taco explain-hang: {options.folder} is not a folder", file=sys.stderr)
        return 2
    dumps, troubles = load(options.folder)
    if not dumps:
        reasons = "".join(f"\n  {trouble}" for trouble in troubles)
        print(f"taco explain-hang: there is no flight record in {options.folder}; processes write them when a group "
              f"fails (TACO_DUMP_DIR), and on torch_taco.dump(){reasons}", file=sys.stderr)
        return 2
    report = explain(dumps, troubles, options.all)
    print(json.dumps(as_json(report), indent=2) if options.json else render(report), end="\n" if options.json else "")
    return 1 if report.found else 0
