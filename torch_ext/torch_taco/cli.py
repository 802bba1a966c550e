"""The command `taco`: its subcommands are modules of this package that have a main()."""

import importlib
import importlib.util
import sys

# subcommand -> what it does; the module of the same name ("-" is "_" there) runs it.
_COMMANDS = {
    "bench": "measure collectives: taco beside gloo in the same run",
    "explain-hang": "which rank is behind and where, by the dumps of all ranks in a folder",
    "run": "start a script on this node, as the launch environment says",
    "settings": "print every environment variable that TACO reads",
    "version": "print the version and the torch it was built for",
}


def _settings(arguments):
    from torch_taco import settings_markdown

    print(settings_markdown(), end="")


def _version(arguments):
    from torch_taco import _build_info

    print(f"torch-taco {_build_info.VERSION}, built for torch {_build_info.TORCH_FULL_VERSION}")


def _usage():
    lines = ["usage: taco <command> [arguments]", ""]
    lines += [f"  {name:14}{what}" for name, what in _available().items()]
    return "\n".join(lines)


def _available():
    return {
        name: what
        for name, what in _COMMANDS.items()
        if f"_{name}" in globals() or importlib.util.find_spec(_module_of(name))
    }


def _module_of(command):
    return f"torch_taco.{command.replace('-', '_')}"


def main(argv=None):
    """Runs `taco <command> ...`; returns the exit status."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else 2
    command, *rest = arguments
    if command not in _available():
        print(f"taco: there is no command '{command}'\n\n{_usage()}", file=sys.stderr)
        return 2
    own = globals().get(f"_{command}")
    run = own if own is not None else importlib.import_module(_module_of(command)).main
    return run(rest) or 0


if __name__ == "__main__":
    sys.exit(main())
