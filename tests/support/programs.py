"""The programs of trainers/ and scripts/, called in this process."""

import inspect

from absl import flags

from trainers import flagfiles


def call(program, *arguments):
    """Runs a program's main with these arguments, as its command line would.

    `main` takes nothing, or the arguments that are no flags, of which there are none.
    """
    before = set(flags.FLAGS)
    program.define_flags()
    try:
        flags.FLAGS(["program", *flagfiles.expand(map(str, arguments))])
        program.main(*([["program"]] if inspect.signature(program.main).parameters else []))
    finally:
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
