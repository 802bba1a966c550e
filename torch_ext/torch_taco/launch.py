"""Where this process stands in the job, as its launcher tells by environment variables.

    print(torch_taco.launch.describe())

prints which launcher was recognised, which variable gave which value, and what was ignored and why. The rules
are the decision table of docs/launching.md.
"""

import os

from torch_taco import _launch

LaunchError = _launch.LaunchError
Launch = _launch.Launch


def read(variables=None, **arguments):
    """The launch environment as a Launch: row, level, rank, world_size, local_rank, nodes, ...

    variables: a mapping, default os.environ. arguments: what is known better than the environment tells, such as
    rank and world_size, or launcher to force a row of the table. LaunchError (a ValueError) names the variable that
    is wrong, its value and what to do.
    """
    return _launch.read(dict(os.environ if variables is None else variables),
                        arguments={name: str(value) for name, value in arguments.items() if value is not None})


def describe(variables=None):
    """The same as text, for people; an environment that is wrong is described by its error."""
    try:
        return read(variables).describe()
    except LaunchError as error:
        return f"the launch environment is wrong ({error.code}): {error}"


def table():
    """The decision table: (name, detected when, level, meaning) of each row, in order."""
    return _launch.table()
