"""TI's MPI mode: the command runs on every host, mpirun must run on one. The first host of the list starts it, the
others wait for its end (waiting.py)."""

import os
import shutil
import socket
import subprocess
import sys

from torch_taco import _launch
from torch_taco.run import waiting
from torch_taco.run.plan import FOR_THIS_PROCESS, CannotStart, Plan

# Variables that the processes on the other hosts need as well.
_PREFIXES = ("LIGHT_", "TACO_", "NCCL_", "TCCL_", "GLOO_", "TORCH_", "PYTORCH_", "PYTHON", "OMP_", "UCX_",
             "CUDA_", "HOROVOD_")
_NAMES = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "GPU_NUM", "GPU_NUM_PER_NODE")
# Said again to the processes by mpirun itself, or meant for this host alone.
_NOT_PASSED = {"MASTER_ADDR", "MASTER_PORT", *FOR_THIS_PROCESS}
_DEFAULT_MASTER_PORT = 29500
_DEFAULT_END_PORT = 29400
_VERSION_SECONDS = 30


def plan(launch, options):
    """The Plan of this host."""
    foreign = options.torchrun_without("module", "master_addr", "master_port")
    if foreign:
        raise CannotStart(f"{' '.join(foreign)}: in MPI mode mpirun starts the processes, not torchrun, so its options "
                          "have no meaning; leave them out (--mpirun-options passes options to mpirun)")
    notes = []
    hosts = launch.hosts
    if not hosts:
        raise CannotStart("the launch environment names no hosts for mpirun; it expects OMPI_MCA_orte_default_hostfile "
                          "or NODE_IP_SLOT_LIST")
    # --nproc gpu: that is what the slots are.
    if isinstance(options.processes, int):
        shared = [slots for _, slots in hosts if slots < options.processes]
        if shared:
            notes.append(f"{options.processes} processes of a host share {min(shared)} "
                         f"GPU{'s' if min(shared) > 1 else ''} (slots of the host list)")
        hosts = [(host, options.processes) for host, _ in hosts]
    names = [host for host, _ in hosts]
    made = Plan("wait", [], notes=notes, hosts=names, port=options.port or _DEFAULT_END_PORT,
                token=waiting.token_of(names, options.script))
    if len(hosts) > 1 and not is_this_host(names[0]):
        if not any(is_this_host(name) for name in names[1:]):
            raise CannotStart(f"this host ({socket.gethostname()}) is none of {', '.join(names)} (the host list of the "
                              "launch environment), so it is not known whether it starts mpirun or waits")
        return made
    made.how = "mpirun"
    made.arguments = command(hosts, options.given.get("master_addr") or names[0],
                             launch.master_port or _DEFAULT_MASTER_PORT, options)
    return made


def is_this_host(name):
    """Does a name or address belong to this machine? Only one's own address can be bound."""
    if name in (socket.gethostname(), socket.getfqdn(), socket.gethostname().split(".")[0]):
        return True
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        if _launch.is_loopback(address[0]) and name not in ("localhost", address[0]):
            continue  # /etc/hosts on this machine may call any name 127.0.1.1
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
            return True
        except OSError:
            continue
    return False


def command(hosts, master, port, options, variables=None):
    """mpirun's command line, by what kind of mpirun is there."""
    variables = os.environ if variables is None else variables
    for host, _ in hosts:
        if ":" in host:
            raise CannotStart(f"the host list names the address '{host}', but mpirun's list of hosts (host:slots) has no "
                              "place for IPv6 addresses; name that host instead")
    total = sum(slots for _, slots in hosts)
    placed = ",".join(f"{host}:{slots}" for host, slots in hosts)
    passed = sorted(name for name in variables if name.startswith(_PREFIXES) or name in _NAMES)
    passed = [name for name in passed if name not in _NOT_PASSED]
    child = [sys.executable, "-m", "torch_taco.run.child", *(["-m"] if options.is_module else []), *options.script]
    if flavour() == "mpich":
        return ["mpiexec", "-n", str(total), "-hosts", placed, "-genvlist", ",".join(passed), "-genv", "MASTER_ADDR",
                master, "-genv", "MASTER_PORT", str(port), *options.mpirun_options, *child]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    exported = [word for name in [*passed, f"MASTER_ADDR={master}", f"MASTER_PORT={port}"] for word in ("-x", name)]
    # Not bound to cores: a training process has threads.
    return ["mpirun", *root, "-np", str(total), "-H", placed, "--bind-to", "none", "--map-by", "slot", *exported,
            *options.mpirun_options, *child]


def flavour():
    """"openmpi", "mpich", or "" where there is no mpirun."""
    if shutil.which("mpirun") is None and shutil.which("mpiexec") is None:
        return ""
    program = "mpirun" if shutil.which("mpirun") else "mpiexec"
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS,
                                stdin=subprocess.DEVNULL, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(f"`{program} --version` does not tell which MPI it belongs to: {error}; see that the "
                          f"{program} on PATH ({shutil.which(program)}) works on this host") from None
    return "mpich" if "HYDRA" in answer.upper() or "MPICH" in answer.upper() else "openmpi"
