"""From the launch environment and the command line to what is started on this node: one function, decide()."""

import os
import sys

from torch_taco import _launch
from torch_taco.run import meeting, mpi
from torch_taco.run.meeting import Meeting
from torch_taco.run.options import for_torchrun
from torch_taco.run.plan import CannotStart, Plan


def decide(options, variables=None):
    """The Plan for this node; LaunchError or CannotStart say in one sentence why there is none."""
    variables = dict(os.environ if variables is None else variables)
    launch = read(options, variables)
    notes = list(launch.warnings)
    if launch.row == "ti-ray":
        plan = _ray_driver(launch, options, variables)
    elif launch.level == "launcher":
        plan = mpi.plan(launch, options)
    elif launch.level == "process" and not _is_by_itself(launch, options):
        plan = _process(launch, options)
    elif launch.level == "role":
        plan = _role(launch, options)
    else:
        plan = _node(launch, options, variables)
    plan.notes = notes + plan.notes
    plan.wait_seconds = options.wait_seconds
    return plan


def _is_by_itself(launch, options):
    """A process that may start those of a job: no launcher has started it, or one has started it alone (the shell of
    `srun --pty bash`) and it is asked for processes."""
    wants_torchrun = options.processes not in (None, 1) or bool(set(options.given) - {"module"})
    return launch.row == "single" or launch.world_size == 1 and wants_torchrun


def read(options, variables):
    """The launch environment, with what the command line says about it."""
    known = {"master_addr": options.given.get("master_addr"), "master_port": options.given.get("master_port"),
             "visible_gpus": visible_gpus(variables)}
    return _launch.read(variables, arguments={name: str(value) for name, value in known.items() if value is not None})


def environment_table(options, variables=None):
    """For --print-env: what was read, and the rules it was read by."""
    launch = read(options, dict(os.environ if variables is None else variables))
    rows = "\n".join(f"  {'->' if name == launch.row else '  '} {name:12} {level:9} {when}"
                     for name, when, level, _ in _launch.table())
    return f"{launch.describe().rstrip()}\n\nthe rows, the first that matches wins:\n{rows}"


def visible_gpus(variables):
    """How many GPUs the processes would see, without touching them."""
    import torch

    chosen = variables.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return len([one for one in chosen.split(",") if one.strip() and one.strip() != "-1"])
    return torch.cuda.device_count()


def _child(options):
    """The script, prepared by torch_taco.run.child: [module, its arguments ...] for `-m`."""
    if options.is_program:
        raise CannotStart("--no-python cannot be used here: the script is prepared by a Python program")
    return ["torch_taco.run.child", *(["-m"] if options.is_module else []), *options.script]


def _processes(launch, options, variables, notes):
    """Processes of a node, as torchrun takes them."""
    gpus = visible_gpus(variables)
    asked = options.processes
    typed = options.given.get("nproc_per_node")
    if asked == "gpu":
        if gpus == 0:
            raise CannotStart("--nproc is 'gpu', but no GPU is visible on this node; give a number, or leave it out")
        asked = gpus
    if asked is None and typed is not None:
        asked = int(typed) if str(typed).isdigit() else typed
    if asked is None:
        asked = launch.processes_per_node
        if asked == "auto":  # torchrun would count CPUs where there is no GPU, and start dozens of processes
            asked = gpus or 1
    if asked is None:
        asked = gpus or 1
    shared = gpus
    if launch.row == "ti-ddp" and not variables.get("CUDA_VISIBLE_DEVICES"):
        shared = int(variables["GPU_NUM_PER_NODE"])
    if isinstance(asked, int) and 0 < shared < asked:
        notes.append(f"{asked} processes of this node share {shared} GPU{'s' if shared > 1 else ''}")
    return asked


def _node(launch, options, variables):
    """A node of a job, or a machine by itself: torchrun's agent starts its processes."""
    notes = []
    worked_out = []
    if "nproc_per_node" not in options.given or options.processes is not None:
        worked_out.append(f"--nproc-per-node={_processes(launch, options, variables, notes)}")
    if launch.level == "process":
        nodes = Meeting(launch, options, nodes=1, node_rank=0)
        if not meeting.OPTIONS & set(options.given):
            return Plan("torchrun", [*worked_out, *options.torchrun, *for_torchrun(options.script)], notes=notes,
                        standalone=True)
        worked_out = [*(nodes.words() if nodes.nodes != 1 else []), *worked_out]
    else:
        nodes = Meeting(launch, options, launch.nodes, launch.node_rank)
        # Kubeflow with a number of nodes that may change: torchrun reads its PET_* variables itself.
        if launch.nodes is not None and launch.node_rank is not None:
            worked_out = [*nodes.words(), *worked_out]
    return Plan("torchrun", [*worked_out, *options.torchrun, *for_torchrun(options.script)], notes=notes,
                is_master=nodes.is_master, master=nodes.master())


def _role(launch, options):
    """A task of a TensorFlow cluster: one process, whose role the script finds in TACO_ROLE."""
    if (options.processes or 1) != 1 or str(options.given.get("nproc_per_node", "1")) != "1":
        raise CannotStart("each task of TF_CONFIG is one process, whose rank follows from its place in the cluster; "
                          "leave out --nproc and --nproc-per-node")
    tasks = Meeting(launch, options, launch.world_size, launch.rank)
    rest = [word for word in options.torchrun if word not in ("-m", "--module")]
    return Plan("torchrun", [*tasks.words(), "--nproc-per-node=1", *rest, "-m", *for_torchrun(_child(options))],
                environment={"TACO_ROLE": launch.role}, is_master=tasks.is_master,
                master=tasks.master())


def _process(launch, options):
    """A launcher has started this process as one of the job: it is the script."""
    if options.torchrun and set(options.given) - {"module"}:
        raise CannotStart(
            f"this process is rank {launch.rank} of {launch.world_size} already (row {launch.row}), so torchrun is not "
            f"used, and {' '.join(options.torchrun)} would have no meaning; leave it out")
    if options.processes is not None and options.processes != 1:
        raise CannotStart(
            f"this process is rank {launch.rank} of {launch.world_size} already (row {launch.row}); --nproc "
            f"{options.processes} would start {options.processes} in each of them: leave it out")
    return Plan("python", [sys.executable, "-m", *_child(options)])


def _ray_driver(launch, options, variables):
    """TI's Ray mode: the script is a driver, which runs once, on the head, and asks Ray for its workers."""
    if options.torchrun and set(options.given) - {"module"} or options.processes:
        raise CannotStart("in a Ray cluster the workers are Ray's: give their number in ScalingConfig(num_workers=...), "
                          "and leave out the options of torchrun and --nproc")
    if launch.node_rank:
        return Plan("nothing", [], notes=[f"this is node {launch.node_rank} of a Ray cluster; the script runs as a Ray "
                                          "driver on node 0, the head, so nothing is started here"])
    environment = {}
    if launch.head_address and not variables.get("RAY_ADDRESS"):
        environment["RAY_ADDRESS"] = _launch.host_and_port(launch.head_address, launch.head_port or 6379)
    return Plan("python", [sys.executable, *(["-m"] if options.is_module else []), *options.script],
                environment=environment, notes=["this is a node of a Ray cluster: the script runs as a Ray driver"])
