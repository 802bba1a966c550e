"""`taco run [options] script.py args`: one command that starts the script on every kind of node.

It reads the launch environment (torch_taco.launch), works out nodes, processes and master, and hands over:

  on a node                        to torchrun's own agent, in this process
  in TI's MPI mode                 to mpirun, on the first host; the other hosts wait for its end
  in a process that a launcher     to the script itself, with the variables that torch reads
  (mpirun, srun, ...) has started

It is no process manager of its own: restarts, logs, signals and error files are torchrun's or mpirun's.
"""

import sys

from torch_taco._launch import LaunchError
from torch_taco.run import decide, options, start
from torch_taco.run.plan import CannotStart


def main(argv=None):
    """Runs `taco run ...` and returns the exit status: the script's."""
    try:
        return _main(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        print("taco run: interrupted", file=sys.stderr)
        return 130


def _main(arguments):
    try:
        chosen = options.parse(arguments)
        if chosen.print_env:
            print(decide.environment_table(chosen))
            return 0
        made = decide.decide(chosen)
    except (LaunchError, CannotStart) as error:
        print(f"taco run: {error}", file=sys.stderr)
        return 2
    for note in made.notes:
        print(f"taco run: {note}", file=sys.stderr, flush=True)
    if chosen.dry_run:
        print(made)
        return 0
    try:
        options.require_script(chosen, made.how)
        return start.start(made)
    except (LaunchError, CannotStart) as error:
        print(f"taco run: {error}", file=sys.stderr)
        return 2
