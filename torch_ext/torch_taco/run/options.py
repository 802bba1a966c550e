"""The command line of `taco run`: a few options of its own among all of torchrun's.

torchrun's own parser is asked where the options end and the script begins, so each of its options, those of later
versions too, may be used and is passed on untouched.
"""

import argparse
import dataclasses
import math
import os
import shlex

from torch.distributed import run as torchrun
from torch_taco.run.plan import CannotStart

# Stands for "no script": --print-env needs none.
_NOTHING = "\0no script"


@dataclasses.dataclass
class Options:
    """What was asked for."""

    processes: int | str | None = None  # on each node; "gpu": as many as there are
    dry_run: bool = False
    print_env: bool = False
    port: int | None = None
    mpirun_options: list[str] = dataclasses.field(default_factory=list)
    wait_seconds: float = 900.0
    torchrun: list[str] = dataclasses.field(default_factory=list)  # options of torchrun, as typed
    given: dict[str, object] = dataclasses.field(default_factory=dict)  # the same, by torchrun's names
    script: list[str] = dataclasses.field(default_factory=list)  # [script or module, its arguments as it sees them ...]

    @property
    def is_module(self):
        return bool(self.given.get("module"))

    @property
    def is_program(self):
        return bool(self.given.get("no_python"))

    def torchrun_without(self, *names):
        """The options of torchrun as typed, but those of these names."""
        actions = {flag: action for action in torchrun.get_args_parser()._actions for flag in action.option_strings
                   if action.dest in names}
        kept, words = [], iter(self.torchrun)
        for word in words:
            flag, has_value, _ = word.partition("=")
            if flag not in actions:
                kept.append(word)
            elif not has_value and actions[flag].nargs != 0:
                next(words, None)
        return kept


class _Word(str):
    """A word that knows its place on the command line, which argparse does not tell."""

    place: int


def parse(argv):
    """Options; ends the program as argparse does where the command line is wrong, or --help asks for it."""
    whole = torchrun.get_args_parser()
    whole.prog = "taco run"
    whole.allow_abbrev = False
    whole.description = ("Starts a script on this node as the launch environment says. All options of torchrun are "
                         "understood and passed on.")
    _add_own(whole)
    for action in whole._actions:
        if action.dest == "training_script":
            action.type = None  # keeps the _Word
    words = [_Word(word) for word in [*argv, _NOTHING]]  # the parser wants a script
    for place, word in enumerate(words):
        word.place = place
    found = whole.parse_args(words)
    place = found.training_script.place
    script = [] if place == len(argv) else [argv[place], *map(str, found.training_script_args[:-1])]
    head = argv[:place - 1] if place > 0 and argv[place - 1] == "--" else argv[:place]
    only_own = argparse.ArgumentParser(prog="taco run", add_help=False, allow_abbrev=False)
    _add_own(only_own)
    own, rest = only_own.parse_known_args(head)
    if not script and not own.print_env:
        whole.error("no script was given: taco run [options] script.py [its arguments]")
    given = _given(rest)
    typed = given.get("nproc_per_node")
    if own.nproc is not None and typed is not None and str(own.nproc) != str(typed):
        whole.error(f"--nproc is '{own.nproc}', but --nproc-per-node is '{typed}'; give one of them")
    try:
        mpirun_options = shlex.split(own.mpirun_options)
    except ValueError as error:
        whole.error(f"--mpirun-options is '{own.mpirun_options}', which is not written as in a shell: {error}")
    return Options(None if own.nproc == "auto" else own.nproc, own.dry_run, own.print_env, own.port, mpirun_options,
                   own.wait_seconds, rest, given, script)


def require_script(options, how):
    """CannotStart where the script is not there, also on a host that waits: mpirun starts ranks on it too."""
    if how == "nothing" or options.is_module or options.is_program or os.path.exists(options.script[0]):
        return
    raise CannotStart(f"there is no script '{options.script[0]}' in {os.getcwd()}; give its path, or -m and a module")


def for_torchrun(words):
    """A script and its arguments as torchrun must get them, to give the script these very words: torchrun drops a `--`,
    and refuses what might be short for several of its own options."""
    flags = [flag for action in torchrun.get_args_parser()._actions for flag in action.option_strings]
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and any(flag.startswith(name) and flag != name for flag in flags):
            return ["--", *words]
    return words


def _add_own(parser):
    own = parser.add_argument_group("taco run")
    own.add_argument("--nproc", type=_processes, help="processes on each node: a number, gpu (one per GPU), or auto "
                     "(the default: as the launch environment says, else one per GPU, else 1)")
    own.add_argument("--dry-run", action="store_true", help="print the command and stop")
    own.add_argument("--print-env", action="store_true", help="print what was read from the environment and stop")
    own.add_argument("--port", type=_port, help="TI's MPI mode: the port at which the first host tells the others "
                     "that it is over, the same on all hosts (default 29400)")
    own.add_argument("--wait-seconds", type=_seconds, default=900.0, help="how long to wait for the master or the "
                     "first host to appear (default 900)")
    own.add_argument("--mpirun-options", default="", metavar="TEXT", help="TI's MPI mode: further options for "
                     "mpirun, in one text: --mpirun-options='--oversubscribe --tag-output'")


def _given(rest):
    """Those of torchrun's options that were typed, by their names in its parser."""
    parser = torchrun.get_args_parser()
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    found = vars(parser.parse_args([*rest, _NOTHING]))
    return {name: value for name, value in found.items() if not name.startswith("training_script")}


def _processes(text):
    if text in ("auto", "gpu"):
        return text
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of processes; give a number, auto or gpu") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} processes cannot be started; it must be 1 or more")
    return value


def _port(text):
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is no port; ports go from 1 to 65535")
    return int(text)


def _seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is no time to wait; give a number of seconds above 0")
    return value
