"""Carries a Plan out and returns the exit status."""

import os
import signal
import socket
import subprocess
import sys
import uuid
from datetime import timedelta

from torch_taco import _launch
from torch_taco._rendezvous import open_store
from torch_taco.run import roles, waiting
from torch_taco.run.plan import FOR_THIS_PROCESS, CannotStart


def start(plan):
    if plan.how in ("torchrun", "mpirun"):
        for name in FOR_THIS_PROCESS:
            os.environ.pop(name, None)
    os.environ.update(plan.environment)
    if plan.how == "nothing":
        return 0
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
    where, _store = _meeting_place() if plan.standalone else ([], None)
    try:
        torchrun.main([*where, *plan.arguments])
    except ChildFailedError as error:
        print(error, file=sys.stderr, flush=True)
        code = error.get_first_failure()[1].exitcode
        roles.worker_failed(plan, f"signal {-code}" if code < 0 else f"exit code {code}")
        return _status(code)
    except SignalException as error:
        roles.worker_failed(plan, f"its `taco run` was ended by signal {int(error.sigval)}")
        return _status(-error.sigval)
    return 0


def _meeting_place():
    """What --standalone stands for, a free port, so that two jobs do not clash; 0.15 s sooner. torchrun's agent, in this
    process, shares the store that is at the port already: nobody else can come to have it in between."""
    store = open_store(0, 1, timedelta(seconds=60), "taco run", "localhost")
    # By number, and this one named as this host: no name is looked up.
    return [f"--master-addr={store.host}", f"--master-port={store.port}", f"--local-addr={store.host}",
            f"--rdzv-id={uuid.uuid4()}"], store


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
    """The exit status of mpirun; 128 + n where signal n has come to this process, which is the platform's way to stop a
    task, and mpirun's to end its processes on all hosts."""
    received, early = [], []
    process = None

    def pass_on(number, _):
        received.append(number)
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    # Before mpirun is started: none may come in between. A session of its own, so that Ctrl-C comes to mpirun once.
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        process = subprocess.Popen(command, start_new_session=True)
        for number in early[:1]:
            process.send_signal(number)
        code = process.wait()
    except PermissionError as error:
        raise CannotStart(f"{command[0]} cannot be started: {error}; see what {command[0]} is on PATH "
                          f"({os.environ.get('PATH')})") from None
    except FileNotFoundError:
        raise CannotStart(f"there is no {command[0]} on PATH ({os.environ.get('PATH')}), and this node is in MPI mode; "
                          "install Open MPI or MPICH in the image, or extend PATH") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + received[0] if received else _status(code)


def _wait(plan):
    _say(f"{plan.hosts[0]} starts the job, this host waits for its end")
    return waiting.wait_for_end(plan.hosts[0], plan.port, plan.token, plan.wait_seconds, _say)
