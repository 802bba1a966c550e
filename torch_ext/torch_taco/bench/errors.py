"""What `taco bench` cannot do."""


class BenchError(RuntimeError):
    """One sentence for the user."""
