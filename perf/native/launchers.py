"""The peers of perf/native/run: where each is, who starts it, and the settings that its documentation recommends for
ranks with and without a core of their own."""

import dataclasses
import os
import pathlib
import shutil


class Missing(Exception):
    """Why a peer cannot be measured here."""


@dataclasses.dataclass
class Peer:
    """One contender beside TACO."""

    name: str
    library: str  # the plug-in's file; a name alone: beside the program
    argument: str = ""  # for the plug-in: which libmpi
    settings: str = ""  # for the table

    def plug_in(self, binaries):
        return binaries / self.library


@dataclasses.dataclass
class ProcessSet:
    """What runs in the same processes."""

    name: str
    launcher: list
    environment: dict
    peers: list


MPI = "libtaco_peer_mpi.so"
ROOT_ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1",
                "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def needed(path, what="make peers"):
    if not path.exists():
        raise Missing(f"{path} is not there: {what}")
    return path


def texts(environment, *more):
    return " ".join([*more, *(f"{name}={value}" for name, value in environment.items() if name not in ROOT_ALLOWED)])


def open_mpi(mpirun, ranks, cpus, extra=()):
    """OpenMPI binds by itself only up to two ranks; with more ranks than cores its ranks must give up the core while
    they wait, which it does not do unless told."""
    if ranks <= cpus:
        options = ["--bind-to", "core", *extra]
    else:
        options = ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", *extra]
    place = [] if ranks <= cpus else ["--oversubscribe"]
    return [str(mpirun), "-np", str(ranks), *place, *options], " ".join(options)


def openmpi(name, ranks, cpus, root):
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None:
        raise Missing("mpirun.openmpi is not installed: apt-get install openmpi-bin")
    extra = ["--mca", "coll_han_priority", "100"] if name == "openmpi-han" else []
    launcher, settings = open_mpi(mpirun, ranks, cpus, extra)
    return ProcessSet(name, launcher, ROOT_ALLOWED, [Peer(name, MPI, "libmpi.so.40", settings)])


def openmpi5(name, ranks, cpus, root):
    home = root / "build" / "peers" / "openmpi5"
    library = needed(home / "lib" / "libmpi.so.40")
    # `tuned` alone: version 5 prefers han where it can.
    extra = ["--mca", "coll_han_priority", "100" if name == "openmpi5-han" else "0"]
    launcher, settings = open_mpi(home / "bin" / "mpirun", ranks, cpus, extra)
    environment = {**ROOT_ALLOWED, "OPAL_PREFIX": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    return ProcessSet(name, launcher, environment, [Peer(name, MPI, str(library), settings)])


def mpich(name, ranks, cpus, root):
    home = root / "build" / "peers" / "mpich"
    library = needed(home / "lib" / "libmpi.so.12")
    launcher = [str(home / "bin" / "mpiexec"), "-np", str(ranks)]
    environment = {}
    if ranks <= cpus:
        launcher += ["-bind-to", "core"]
    else:
        environment = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
    return ProcessSet(name, launcher, environment, [Peer(name, MPI, str(library), texts(environment, *launcher[3:]))])


def intel(ranks, cpus, home):
    """Intel MPI on one host. It binds by itself, a core a rank; with more ranks than cores they must yield."""
    needed(home / "bin" / "mpiexec.hydra")
    environment = {"I_MPI_FABRICS": "shm"}
    if ranks > cpus:
        environment.update({"I_MPI_THREAD_YIELD": "2", "I_MPI_PIN": "0", "I_MPI_WAIT_MODE": "0"})
    quiet = {"I_MPI_ROOT": str(home), "LD_LIBRARY_PATH": str(home / "lib"), "I_MPI_HYDRA_BOOTSTRAP": "fork",
             "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    return [str(home / "bin" / "mpiexec.hydra"), "-n", str(ranks)], environment, quiet


def impi(name, ranks, cpus, root):
    home = root / "build" / "peers" / "intel"
    launcher, environment, quiet = intel(ranks, cpus, home)
    peer = Peer(name, MPI, str(needed(home / "lib" / "libmpi.so.12")), texts(environment))
    return ProcessSet(name, launcher, {**environment, **quiet}, [peer])


def oneccl(name, ranks, cpus, root):
    home = root / "build" / "peers" / "intel"
    library = needed(home / "libtaco_peer_oneccl.so")
    launcher, environment, quiet = intel(ranks, cpus, home)
    environment = {**environment, "CCL_ATL_TRANSPORT": "mpi", "CCL_WORKER_COUNT": "1"}
    if ranks > cpus:
        environment["CCL_YIELD"] = "sched_yield"
    if name == "oneccl-2d":
        environment["CCL_ALLREDUCE"] = "2d"
    return ProcessSet(name, launcher, {**environment, **quiet, "CCL_LOG_LEVEL": "error"},
                      [Peer(name, str(library), "", texts(environment))])


def deepspeed(name, ranks, cpus, root):
    """Needs no MPI: it goes into the processes of whoever is there, and is started by OpenMPI's mpirun alone otherwise.
    One thread a rank, as DeepSpeed's launcher sets it when it binds ranks to cores."""
    library = needed(root / "build" / "peers" / "deepspeed" / "libtaco_peer_deepspeed.so")
    environment = {"OMP_NUM_THREADS": "1"}
    return ProcessSet(name, [], environment, [Peer(name, str(library), "", texts(environment))])


def commux(name, ranks, cpus, root):
    """A backend of torch.distributed over UCX, called from C++. Its UCX takes over signals and memory hooks: apart from
    everybody but TACO."""
    library = needed(root / "build" / "peers" / "commux" / "libtaco_peer_commux.so")
    host = openmpi("openmpi", ranks, cpus, root)
    environment = {"OMP_NUM_THREADS": "1"}
    peer = Peer(name, str(library), "", texts(environment))
    return ProcessSet(name, host.launcher, {**host.environment, **environment}, [peer])


PEERS = {"openmpi": openmpi, "openmpi-han": openmpi, "openmpi5": openmpi5, "openmpi5-han": openmpi5, "mpich": mpich,
         "impi": impi, "oneccl": oneccl, "oneccl-2d": oneccl, "deepspeed": deepspeed, "commux": commux}
NAMES = list(PEERS)


def process_sets(names, ranks, cpus, root):
    """The sets that these peers need, and why some of them cannot be had: (sets, {name: why})."""
    sets, missing = [], {}
    for name in names:
        try:
            sets.append(PEERS[name](name, ranks, cpus, pathlib.Path(root)))
        except Missing as error:
            missing[name] = str(error)
    guests = [one for one in sets if not one.launcher]
    sets = [one for one in sets if one.launcher]
    for guest in guests:
        # A guest that spins where ranks share cores leaves its neighbours a scheduler out of balance: apart then.
        if not sets or ranks > cpus:
            try:
                host = openmpi("openmpi", ranks, cpus, pathlib.Path(root))
            except Missing as error:
                missing[guest.name] = f"nobody starts its processes: {error}"
                continue
            sets.append(ProcessSet(guest.name, host.launcher, {**host.environment, **guest.environment}, guest.peers))
        else:
            sets[0].peers += guest.peers
            sets[0].environment = {**sets[0].environment, **guest.environment}
    return sets, missing


def spread(sets, missing, hosts, agent):
    """Those of the sets that can run over several nodes, changed so that they do."""
    kept = []
    for one in sets:
        if one.name not in ("openmpi", "openmpi-han"):
            missing[one.name] = "over several nodes only openmpi and openmpi-han are measured"
            continue
        # The nodes are on one machine, and each would bind its ranks to the same cores.
        options = ["none" if word == "core" else word for word in one.launcher[1:]]
        network = ["--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"]
        one.launcher = [one.launcher[0], "-H", hosts, "--mca", "plm_rsh_agent", agent, *network, *options]
        for peer in one.peers:
            peer.settings = f"{peer.settings.replace('--bind-to core', '--bind-to none')} --mca btl_tcp_if_include eth0"
        kept.append(one)
    return kept
