"""What every program does around its own work: parse flags, and tell of bad input in one line."""

import os
import sys

from absl import app, logging


def run(main, define_flags):
    """Defines the flags and runs `main()` under absl.

    A ValueError, an OSError, training that diverged or a missing package ends the program with one line on stderr and
    status 1; with the environment variable KERAS_ADAPTIVE_TRACEBACK set it is raised. Flags are defined here and not
    when a module is imported, so that two programs may use one name.
    """
    define_flags()

    def guarded(arguments):
        if arguments[1:]:
            raise app.UsageError(f"Unknown arguments: {arguments[1:]}. Flags look like --name=value.")
        logging.set_verbosity(logging.WARNING)
        try:
            main()
        except (ValueError, OSError, FloatingPointError, ModuleNotFoundError) as error:
            if os.environ.get("KERAS_ADAPTIVE_TRACEBACK"):
                raise
            program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
            sys.exit(f"{program}: {' '.join(str(error).split())}")

    app.run(guarded)
