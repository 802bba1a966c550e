"""`taco bench`: how fast a collective is, beside other backends of torch.distributed in the same run.

options   what the command line asks for
ranks     the processes, their groups, and one measurement in them
problem   inputs whose result is known exactly
session   which sizes, how often, what comes out
report    text, markdown, CSV and JSON
"""

import sys

from . import options


def main(argv=None):
    """Runs `taco bench <argv>`; returns the exit code."""
    request = options.parse(sys.argv[1:] if argv is None else argv)
    from . import ranks, report, session  # these load torch: `taco bench --help` need not wait for it

    try:
        return report.show(session.run(request), request)
    except ranks.BenchError as error:
        print(f"taco bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
