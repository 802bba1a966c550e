"""What a benchmark ran on, as it stands in every data file."""

import datetime
import importlib.metadata
import os
import platform
import subprocess

import torch

from . import limits


def cpu_name():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def own_version():
    try:
        return importlib.metadata.version("torch-taco")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def commit():
    """Of the checkout that this is run in, with "changed" if it is; "" outside of one."""
    found = subprocess.run(["git", "describe", "--always", "--dirty=-changed", "--exclude=*"], capture_output=True,
                           text=True, check=False)
    return found.stdout.strip()


def flag_ns():
    """How long a flag takes from one core to another; None where there is only one core."""
    from torch_taco._group import extension

    cores = sorted(os.sched_getaffinity(0))
    return round(extension()._flag_latency_ns(cores[0], cores[1]), 1) if len(cores) > 1 else None


def describe(request, network):
    """network: in words, what connects the nodes."""
    cores = len(os.sched_getaffinity(0))
    return {
        "collective": request.collective,
        "ranks": request.ranks,
        "nodes": request.nodes,
        "network": network,
        "rate": request.rate,
        "cores": cores,
        "bound": request.bind,
        "cpu": cpu_name(),
        "last_cache_bytes": limits.last_cache_bytes(),
        "flag_ns": flag_ns(),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "torch_taco": own_version(),
        "commit": commit(),
        "settings": [],
    }
