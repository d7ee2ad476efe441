"""What every program does around its own work: it parses flags and reports bad input in one line."""

import os
import sys

from absl import app, logging


def run(main, define_flags, paths=None):
    """Defines the flags and runs `main()` under absl, or `main(*paths)` for a program of paths.

    A ValueError, an OSError, training that diverged or a missing package ends the program with one line on stderr and
    status 1; with the environment variable KERAS_ADAPTIVE_TRACEBACK set it is raised. Ctrl-C ends the program with one
    line and status 130. Flags are defined here and not when a module is imported, so that two programs may use one
    name.

    Args:
        main: the program.
        define_flags: defines its flags.
        paths: what the arguments that are no flags are, such as "RUN"; one at least must be given. By default the
            program takes none.
    """
    define_flags()

    def guarded(arguments):
        arguments = arguments[1:]
        if paths and not arguments:
            raise app.UsageError(f"Give at least one {paths}.")
        if arguments and not paths:
            raise app.UsageError(f"Unknown arguments: {arguments}. Flags look like --name=value.")
        logging.set_verbosity(logging.WARNING)
        program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
        try:
            main(*arguments)
        except (ValueError, OSError, FloatingPointError, ModuleNotFoundError) as error:
            if os.environ.get("KERAS_ADAPTIVE_TRACEBACK"):
                raise
            sys.exit(f"{program}: {' '.join(str(error).split())}")
        except KeyboardInterrupt:
            print(f"{program}: interrupted.", file=sys.stderr)
            sys.exit(130)

    app.run(guarded)
