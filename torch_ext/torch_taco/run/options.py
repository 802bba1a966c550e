"""The command line of `taco run`: a few options of its own among all of torchrun's.

torchrun's own parser is asked where the options end and the script begins, so each of its options, those of later
versions too, may be used and is passed on untouched.
"""

import argparse
import dataclasses
import shlex

from torch.distributed import run as torchrun

# Stands for "no script": --print-env needs none.
_NOTHING = "\0no script"


@dataclasses.dataclass
class Options:
    """What was asked for."""

    processes: int | None = None  # on each node
    dry_run: bool = False
    print_env: bool = False
    port: int | None = None
    mpirun_options: list[str] = dataclasses.field(default_factory=list)
    wait_seconds: float = 900.0
    torchrun: list[str] = dataclasses.field(default_factory=list)  # options of torchrun, as typed
    given: dict[str, object] = dataclasses.field(default_factory=dict)  # the same, by torchrun's names
    script: list[str] = dataclasses.field(default_factory=list)  # [script or module, its arguments ...]

    @property
    def is_module(self):
        return bool(self.given.get("module"))

    @property
    def is_program(self):
        return bool(self.given.get("no_python"))


def parse(argv):
    """Options; ends the program as argparse does where the command line is wrong, or --help asks for it."""
    whole = torchrun.get_args_parser()
    whole.prog = "taco run"
    whole.description = ("Starts a script on this node as the launch environment says. All options of torchrun are "
                         "understood and passed on.")
    _add_own(whole)
    # The parser wants a script.
    found = whole.parse_args([*argv, _NOTHING])
    script = [found.training_script, *found.training_script_args]
    head = argv[:len(argv) + 1 - len(script)]
    script = script[:-1]
    only_own = argparse.ArgumentParser(prog="taco run", add_help=False, allow_abbrev=False)
    _add_own(only_own)
    own, rest = only_own.parse_known_args(head)
    if not script and not own.print_env:
        whole.error("no script was given: taco run [options] script.py [its arguments]")
    return Options(own.nproc, own.dry_run, own.print_env, own.port, shlex.split(own.mpirun_options), own.wait_seconds,
                   rest, _given(rest), script)


def _add_own(parser):
    own = parser.add_argument_group("taco run")
    own.add_argument("--nproc", type=_positive, help="processes on each node (default: as the launch environment "
                     "says, else one per GPU, else 1)")
    own.add_argument("--dry-run", action="store_true", help="print the command and stop")
    own.add_argument("--print-env", action="store_true", help="print what was read from the environment and stop")
    own.add_argument("--port", type=int, help="TI's MPI mode: the port at which the first host tells the others "
                     "that it is over, the same on all hosts (default 29400)")
    own.add_argument("--wait-seconds", type=float, default=900.0, help="how long to wait for the master or the "
                     "first host to appear (default 900)")
    own.add_argument("--mpirun-options", default="", metavar="TEXT", help="TI's MPI mode: further options for "
                     "mpirun, in one text")


def _given(rest):
    """Those of torchrun's options that were typed, by their names in its parser."""
    parser = torchrun.get_args_parser()
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    found = vars(parser.parse_args([*rest, _NOTHING]))
    return {name: value for name, value in found.items() if not name.startswith("training_script")}


def _positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} processes cannot be started; it must be 1 or more")
    return value
