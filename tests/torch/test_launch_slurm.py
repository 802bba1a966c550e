"""A real `srun -n 4`, on a Slurm cluster of one node that this test starts. (Recorded environments of larger ones:
tests/launch.)"""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

import launching
import ranks

PROGRAMS = ("slurmctld", "slurmd", "srun", "sinfo")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None and not os.path.exists(f"/usr/sbin/{name}")]
pytestmark = [
    pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's launching: TEST_BACKEND is set"),
    pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed ({', '.join(MISSING)}): apt-get install slurmctld "
                                             "slurmd slurm-client"),
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd must be started by root"),
]

CONFIGURATION = """
ClusterName=taco
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
SlurmdParameters=config_overrides
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """SLURM_CONF of a running cluster."""
    folder = tmp_path_factory.mktemp("slurm")
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(
        host=socket.gethostname().split(".")[0], folder=folder, controller_port=launching.free_port(),
        daemon_port=launching.free_port()))
    environment = launching.environment(SLURM_CONF=configuration, PATH=f"{os.environ['PATH']}:/usr/sbin")
    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            with open(folder / f"{name}.log", "w") as log:
                daemons.append(subprocess.Popen([name, "-D", "-f", configuration], stdout=log, stderr=log,
                                                stdin=subprocess.DEVNULL, env=environment))
        deadline = time.monotonic() + 60
        while subprocess.run(["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True, timeout=30,
                             check=False).stdout.strip() != "idle":
            if time.monotonic() > deadline:
                pytest.fail("the Slurm cluster did not come up:\n" + "\n".join(
                    (folder / f"{name}.log").read_text() for name in ("slurmctld", "slurmd")))
            time.sleep(0.1)
        yield configuration
    finally:
        for daemon in daemons:
            daemon.terminate()
            daemon.wait(30)


def test_srun(cluster):
    out, errors = launching.run(["srun", "-n", 4, sys.executable, launching.TRAIN, "--steps", launching.STEPS],
                                SLURM_CONF=cluster)
    launching.check_training(out, 4)
    said = [line for line in errors.splitlines() if "taco:" in line and "waiting for" not in line]
    assert not said, errors  # a slow start is no mistake


def test_taco_run_in_a_task(cluster, tmp_path):
    """A script that needs torch's variables, under srun; and the batch script, which is no task, is warned."""
    script = tmp_path / "script.py"
    script.write_text("import os, sys\nopen(f\"rank{os.environ.get('RANK')}\", 'w').write(' '.join(os.environ.get(name, '?')"
                      " for name in ('WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR')))\n")
    launching.run(["srun", "-n", 2, launching.BIN / "taco", "run", script], SLURM_CONF=cluster, cwd=tmp_path)
    host = socket.gethostname().split(".")[0]
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] in (
        [f"2 {rank} {host}" for rank in (0, 1)], [f"2 {rank} 127.0.0.1" for rank in (0, 1)])
