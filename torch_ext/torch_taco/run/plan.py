"""What `taco run` starts on this node, as a value that prints itself (--dry-run)."""

import dataclasses
import shlex


# What a process is told about itself (docs/launching.md, rows 1 and TACO_LAUNCHER): not true of those it starts.
FOR_THIS_PROCESS = ("TACO_LAUNCHER", "TACO_RANK", "TACO_WORLD_SIZE", "TACO_LOCAL_RANK", "TACO_LOCAL_WORLD_SIZE")


class CannotStart(Exception):
    """One sentence: what is missing, and what to do."""


@dataclasses.dataclass
class Plan:
    """What is started here.

    how: "torchrun" (arguments are torchrun's), "mpirun" or "python" (arguments are the whole command), "wait"
    (nothing: another host starts the job, and its end is waited for), or "nothing" (another host does the work).
    """

    how: str
    arguments: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)  # what is set besides what is there
    notes: list[str] = dataclasses.field(default_factory=list)
    master: tuple[str, int, str] | None = None  # torchrun's: address, port, origin (the port's where it is opened here)
    is_master: bool = False
    standalone: bool = False  # torchrun on this machine alone, at a free port (start.py)
    hosts: list[str] = dataclasses.field(default_factory=list)  # TI's MPI mode; the first is the one that starts
    port: int = 0  # at which the first tells the others that it is over
    token: str = ""  # tells this job from others at the same port
    wait_seconds: float = 900.0

    def __str__(self):
        words = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items())]
        if self.how == "wait":
            return f"# nothing is started here: {self.hosts[0]} starts the job, and this host waits for its end"
        if self.how == "nothing":
            return "# nothing is started here"
        words += ["torchrun"] if self.how == "torchrun" else []
        words += ["--standalone"] if self.standalone else []
        return " ".join(words + [shlex.quote(word) for word in self.arguments])
