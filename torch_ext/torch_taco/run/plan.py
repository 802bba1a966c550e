"""What `taco run` starts on this node, as a value that prints itself (--dry-run)."""

import dataclasses
import shlex


class CannotStart(Exception):
    """One sentence: what is missing, and what to do."""


@dataclasses.dataclass
class Plan:
    """What is started here.

    how: "torchrun" (arguments are torchrun's), "mpirun" or "python" (arguments are the whole command), or "wait"
    (nothing: another host starts the job, and its end is waited for).
    """

    how: str
    arguments: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)  # what is set besides what is there
    notes: list[str] = dataclasses.field(default_factory=list)
    master: tuple[str, int, str] | None = None  # of a job of several nodes: address, port, origin
    is_master: bool = False
    hosts: list[str] = dataclasses.field(default_factory=list)  # TI's MPI mode; the first is the one that starts
    port: int = 0  # at which the first tells the others that it is over
    token: str = ""  # tells this job from others at the same port
    wait_seconds: float = 900.0

    def __str__(self):
        words = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items())]
        if self.how == "wait":
            return f"# nothing is started here: {self.hosts[0]} starts the job, and this host waits for its end"
        words += ["torchrun"] if self.how == "torchrun" else []
        return " ".join(words + [shlex.quote(word) for word in self.arguments])
