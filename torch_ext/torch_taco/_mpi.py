"""Under mpirun without MASTER_ADDR: rank 0 tells the others through MPI where its store is.

The work is done in C++ (csrc/mpi), which opens the libmpi of the mpirun that started this process; nothing here
is linked to MPI. MPI stays initialised afterwards, for TACO_TRANSPORT=mpi and for programs that use mpi4py too,
and is finalised when the process ends.
"""

from datetime import timedelta

from torch.distributed.constants import default_pg_timeout

from torch_taco._group import extension


def broadcast_master(port: int | None, timeout: timedelta = default_pg_timeout) -> tuple[str, int]:
    """(address, port) of the job's store. Rank 0, where it listens, passes its port, all others None.

    Collective over all processes of the mpirun. The address is loopback if all of them share one network, else that
    of the interface that leads from rank 0 to the others (or TACO_SOCKET_IFNAME's).
    """
    return extension().mpi_broadcast_master(port or 0, timeout)
