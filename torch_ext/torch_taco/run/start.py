"""Carries a Plan out and returns the exit status."""

import os
import signal
import socket
import subprocess
import sys

from torch_taco import _launch
from torch_taco.run import waiting
from torch_taco.run.plan import CannotStart


def start(plan):
    os.environ.update(plan.environment)
    if plan.how == "torchrun":
        return _torchrun(plan)
    if plan.how == "mpirun":
        return _mpirun(plan)
    if plan.how == "wait":
        return _wait(plan)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(plan.arguments[0], plan.arguments)


def _say(line):
    print(f"taco run on {socket.gethostname()}: {line}", file=sys.stderr, flush=True)


def _torchrun(plan):
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    if plan.master is not None:
        address, port, origin = plan.master
        if plan.is_master:
            _launch.check_port(port, origin)
        else:
            # The other nodes' agents would wait as well, but without a word.
            _launch.wait_for_listener(address, port, plan.wait_seconds, _say, origin)
    try:
        torchrun.main(plan.arguments)
    except ChildFailedError as error:
        print(error, file=sys.stderr, flush=True)
        return _status(error.get_first_failure()[1].exitcode)
    except SignalException as error:
        return _status(-error.sigval)
    return 0


def _status(code):
    """As a shell shows it: 128 + n for a process that signal n has ended."""
    return 128 - code if code < 0 else code


def _mpirun(plan):
    announcer = None
    if len(plan.hosts) > 1:
        announcer = waiting.Announcer(plan.port, plan.token, len(plan.hosts) - 1)
    code = 1
    try:
        code = _run(plan.arguments)
    finally:
        if announcer is not None:
            if announcer.missing():
                _say(f"the job is over; {announcer.missing()} of the other hosts have not asked yet, waiting up to "
                     f"{waiting.LATE_SECONDS:.0f} s for them")
            announcer.end(code)
    return code


def _run(command):
    try:
        process = subprocess.Popen(command)
    except FileNotFoundError:
        raise CannotStart(f"there is no {command[0]} on PATH ({os.environ.get('PATH')}), and this node is in MPI mode; "
                          "install Open MPI or MPICH in the image, or extend PATH") from None
    # The platform stops a task by SIGTERM; mpirun ends its processes on all hosts when it gets one.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _: process.send_signal(received))
    return _status(process.wait())


def _wait(plan):
    _say(f"{plan.hosts[0]} starts the job, this host waits for its end")
    return waiting.wait_for_end(plan.hosts[0], plan.port, plan.token, plan.wait_seconds, _say)
