"""The files that flight records are dumped into: reads them, and believes nothing that it has not checked."""

import json
import pathlib

FORMAT = "taco-flight-record"
VERSION = 1
_LARGEST_BYTES = 64 << 20  # 2,000 operations take less than 2 MB
_MOST_RANKS = 1 << 20

_NUMBER = (int, float)
_MAYBE_NUMBER = (int, float, type(None))
_MAYBE_TEXT = (str, type(None))
_MAYBE_INT = (int, type(None))

# Field -> the types that it may have.
_DUMP = {"host": str, "pid": int, "rank": int, "reason": str, "written": _NUMBER, "forgotten": int, "groups": list,
         "operations": list}
_GROUP = {"number": int, "id": str, "name": str, "rank": int, "size": int, "global_ranks": list, "begun": int,
          "completed": int, "ended": _MAYBE_NUMBER, "failure": _MAYBE_TEXT}
_OPERATION = {"group": int, "sequence": _MAYBE_INT, "op": _MAYBE_TEXT, "title": _MAYBE_TEXT, "state": str,
              "dtype": _MAYBE_TEXT, "count": _MAYBE_INT, "bytes": _MAYBE_INT, "reduce_op": _MAYBE_TEXT,
              "root": _MAYBE_INT, "peer": _MAYBE_INT, "tag": _MAYBE_INT, "queued": _MAYBE_NUMBER,
              "started": _MAYBE_NUMBER, "finished": _MAYBE_NUMBER, "error": _MAYBE_TEXT}
_COLLECTIVE = {"sequence": int, "dtype": str, "count": int}
_MESSAGE = {"sequence": int, "dtype": str, "bytes": int, "peer": int, "tag": int}
_STATES = ("queued", "started", "done", "failed")


class NotADump(ValueError):
    """What is in the file is no flight record; the text says why."""


def load(folder):
    """All dumps in a folder, and a sentence for each file that should be one and cannot be read."""
    dumps, troubles = [], []
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        try:
            if path.stat().st_size > _LARGEST_BYTES:
                raise NotADump(f"it has more than {_LARGEST_BYTES >> 20} MiB")
            dumps.append(parse(path.read_bytes()))
        except (OSError, NotADump) as error:
            troubles.append(f"{path.name} is left out: {error}")
    return dumps, troubles


def parse(text):
    """The dump that a file's bytes are; raises NotADump."""
    try:
        dump = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotADump(f"it is no whole JSON text ({error})") from None
    if not isinstance(dump, dict) or dump.get("format") != FORMAT:
        raise NotADump("it is not a flight record of TACO")
    if dump.get("version") != VERSION:
        raise NotADump(f"it is of version {dump.get('version')!r}, and this taco reads version {VERSION}: use the taco "
                       "that wrote it")
    _check(dump, _DUMP, "it")
    for group in dump["groups"]:
        _check(group, _GROUP, "a group in it")
        if not 1 <= group["size"] <= _MOST_RANKS or not 0 <= group["rank"] < group["size"]:
            raise NotADump(f"a group in it has rank {group['rank']} of {group['size']}")
        if not all(_is(one, int) for one in group["global_ranks"]):
            raise NotADump("a group in it has global ranks that are no numbers")
    for operation in dump["operations"]:
        _check(operation, _OPERATION, "an operation in it")
        if operation["state"] not in _STATES:
            raise NotADump(f"an operation in it is {operation['state']!r:.60}")
        if operation["op"] is not None:
            _check(operation, _MESSAGE if operation["op"] in ("send", "recv") else _COLLECTIVE, "an operation in it")
    return dump


def _check(found, fields, what):
    if not isinstance(found, dict):
        raise NotADump(f"{what} is {type(found).__name__}, not an object")
    for name, types in fields.items():
        if name not in found:
            raise NotADump(f"{what} has no {name!r}")
        if not _is(found[name], types):
            raise NotADump(f"{what} has {found[name]!r:.60} as {name!r}")


def _is(value, types):
    return isinstance(value, types) and not isinstance(value, bool)
