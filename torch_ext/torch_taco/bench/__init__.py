"""`taco bench`: how fast a collective is, beside other backends in the same run.

options     what the command line asks for
operations  the collectives, and limits: how fast they could be
ranks       the processes, their groups, and one measurement in them; place: where they run
problem     inputs whose result is known exactly; compressed: with TopK; ddp: a training step
topk        `taco bench topk`: the selection alone, in this process
native      peers that are no backends of torch.distributed
session     which sizes, how often, what comes out: machine, figures
report      text, markdown, CSV and JSON; plot: SVG
cluster     nodes that are network namespaces
"""

import sys

from . import options
from .errors import BenchError


def main(argv=None):
    """Runs `taco bench <argv>`; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["topk"]:
        from . import topk

        return topk.main(arguments[1:])
    request = options.parse(arguments)
    from . import report, session  # these load torch: `taco bench --help` need not wait for it

    try:
        return report.show(session.run(request), request)
    except BenchError as error:
        print(f"taco bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
