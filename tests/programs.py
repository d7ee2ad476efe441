"""The programs of trainers/, called in this process."""

from absl import flags


def call(program, *arguments):
    """Runs a program's main with these arguments, as its command line would."""
    before = set(flags.FLAGS)
    program.define_flags()
    try:
        flags.FLAGS(["program", *map(str, arguments)])
        program.main()
    finally:
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
