"""Where the agents of torchrun meet: the launch environment says it, and options on the command line say it better."""

from torch_taco import _launch
from torch_taco.run.plan import CannotStart

# Options of torchrun that say how its agents meet.
OPTIONS = {"nnodes", "node_rank", "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "standalone"}
_DEFAULT_PORT = 29500  # torchrun's


class Meeting:
    """The place of one node among all nodes of a job. CannotStart where the nodes could not find each other."""

    def __init__(self, launch, options, nodes, node_rank):
        """nodes, node_rank: the environment's; None: it does not say."""
        self._launch, self._given = launch, options.given
        self.nodes = _number_of_nodes(self._given["nnodes"]) if "nnodes" in self._given else nodes
        self.node_rank = self._given.get("node_rank", node_rank)
        # A place that is not the master's, or a number of nodes that may change: torchrun looks after it by itself.
        self._is_torchruns = self.nodes is None or self.node_rank is None or "rdzv_endpoint" in self._given or bool(
            self._given.get("standalone")) or self._is_elastic() and launch.level == "process"
        # Tasks of a TensorFlow cluster may share a host, and their addresses are the cluster's own.
        if not self._is_torchruns and self.nodes > 1 and launch.level != "role":
            self._require_reachable()

    @property
    def is_master(self):
        return self.node_rank == 0

    def master(self):
        """(address, port, origin) that Plan wants: the port's origin where it is opened, else the address's."""
        if self._is_torchruns:
            return None
        address, port, origin = self._place()
        if self.is_master:
            otherwise = "torchrun's default" if self._launch.level == "process" else origin
            origin = self._origin("master_port", "master_port", otherwise)
        return address, port, origin

    def words(self):
        """torchrun's options for it, but those that were typed."""
        if self._given.get("standalone") or self._is_torchruns and self._launch.level == "process":
            return []
        words = {"nnodes": f"--nnodes={self.nodes}"}
        address, port, _ = (None, None, None) if self._is_torchruns else self._place()
        if self._is_elastic():
            if address is not None:
                words["rdzv_endpoint"] = f"--rdzv-endpoint={_launch.host_and_port(address, port)}"
            words["rdzv_conf"] = f"--rdzv-conf=is_host={str(self.is_master).lower()}"
        else:
            words["node_rank"] = f"--node-rank={self.node_rank}"
            if address is not None:
                words |= {"master_addr": f"--master-addr={address}", "master_port": f"--master-port={port}"}
        return [word for name, word in words.items() if name not in self._given]

    def _is_elastic(self):
        return self._given.get("rdzv_backend", "static") != "static"

    def _place(self):
        if self._launch.level != "process":
            return self._launch.require_master()
        address = self._given.get("master_addr") or self._launch.master_address
        if address is None and self.nodes > 1:
            raise CannotStart(f"--nnodes is '{self._given['nnodes']}', but nothing says where the nodes meet; add "
                              "--master-addr, the address of the first node, which is the same on all of them")
        port = self._given.get("master_port") or self._launch.master_port or _DEFAULT_PORT
        return address or "127.0.0.1", port, self._origin("master_addr", "master_address", "--master-addr")

    def _origin(self, option, field, otherwise):
        if option in self._given:
            return f"--{option.replace('_', '-')}"
        return next((origin for name, _, origin in self._launch.values if name == field), otherwise)

    def _require_reachable(self):
        address, _, origin = self._place()
        if _launch.is_loopback(address):
            raise CannotStart(
                f"{origin} is '{address}', but the job has {self.nodes} nodes, and each of them would take itself for "
                "the master; give the address of the first node, which the others can reach")
        if not 0 <= self.node_rank < self.nodes:
            raise CannotStart(f"--node-rank is '{self.node_rank}', but the job has {self.nodes} nodes; it must be from "
                              f"0 to {self.nodes - 1}")


def _number_of_nodes(text):
    """Of --nnodes; None where the number may change (1:4), or is none, which torchrun says itself."""
    least, _, most = str(text).partition(":")
    return int(least) if least.isdecimal() and most in ("", least) else None
