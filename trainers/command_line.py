"""Entry point of every program: parses flags and reports bad input in one line."""

import math
import os
import sys

from absl import app, flags, logging

from trainers import flagfiles

HELP = {"--help", "-help", "-h", "-?", "--helpshort"}


def run(main, define_flags, paths=None):
    """Defines the flags and runs `main()` under absl, or `main(*paths)` for a program of paths.

    A ValueError, an OSError, training that diverged or a missing package ends the program with one line on stderr and
    status 1; with the environment variable KERAS_ADAPTIVE_TRACEBACK set it is raised. Ctrl-C ends the program with one
    line and status 130. Flags are defined here and not when a module is imported, so that two programs can use one
    name.

    Args:
        main: Function of the program.
        define_flags: Function that defines the flags of the program.
        paths: Name of the positional arguments, such as "RUN"; at least one must then be given. By default the program
            takes none.
    """
    define_flags()

    def guarded(arguments):
        arguments = arguments[1:]
        if paths and not arguments:
            raise app.UsageError(f"Give at least one {paths}.")
        if arguments and not paths:
            raise app.UsageError(f"Unknown arguments: {arguments}. Flags look like --name=value.")
        logging.set_verbosity(logging.WARNING)
        in_one_line(lambda: main(*arguments))

    app.run(guarded, flags_parser=parse)


def parse(arguments):
    """Parses the flags of a command line, with flagfiles, and returns the other arguments; --help exits."""
    if HELP.intersection(arguments[1:]):
        in_one_line(lambda: print(help_text(), flush=True))
        sys.exit(0)
    return app.parse_flags_with_usage([arguments[0], *in_one_line(lambda: flagfiles.expand(arguments[1:]))])


def help_text():
    """Returns the description of the program and its flags; flags of an experiment are grouped by part."""
    groups = [name for name in flags.FLAGS.flags_by_module_dict() if not name.startswith("absl")]
    groups.sort(key=lambda name: name != sys.argv[0])  # the program's own flags first
    return "\n".join([sys.modules["__main__"].__doc__ or "", *map(flags.FLAGS.module_help, groups)])


def in_one_line(function):
    """Returns `function()`; bad input or Ctrl-C ends the program with one line and status 1 or 130."""
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    try:
        return function()
    except (ValueError, OSError, FloatingPointError, ModuleNotFoundError) as error:
        if os.environ.get("KERAS_ADAPTIVE_TRACEBACK"):
            raise
        sys.exit(f"{program}: {' '.join(str(error).split())}")
    except KeyboardInterrupt:
        print(f"{program}: interrupted.", file=sys.stderr)
        sys.exit(130)


class _Finite(flags.FloatParser):
    def parse(self, argument):
        value = super().parse(argument)
        if not math.isfinite(value):
            raise ValueError("must be a finite number.")
        return value


def define_float(name, default, help, least=None, most=None, values=flags.FLAGS, group=None):
    """Defines a flag of a float that is neither infinite nor NaN, which compares with no bound."""
    parser, serializer = _Finite(least, most), flags.ArgumentSerializer()
    flags.DEFINE(parser, name, default, help, values, serializer, module_name=group)
