"""Entry point of every program: parses flags and reports bad input in one line."""

import ctypes
import functools
import math
import os
import re
import sys

from absl import app, flags, logging

from trainers.experiments import flagfiles

REPORTED = (ValueError, OSError, FloatingPointError, ModuleNotFoundError)  # errors that bad input raises
OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory|RESOURCE_EXHAUSTED|OOM when")  # messages of backends
SEE_HELP = "Pass --help to see the flags."
HELP = {"--help", "-help", "-h", "-?", "--helpshort"}
# Options of glibc's mallopt: no trimming of the heap (M_TRIM_THRESHOLD), no blocks outside of it (M_MMAP_MAX), and a
# single heap for all threads (M_ARENA_MAX).
KEEP_FREED_MEMORY = {-1: -1, -4: 0, -8: 1}

flags.disclaim_key_flags()  # the flags defined here belong to the program, whose --help shows them


def run(main, define_flags, paths=None):
    """Defines the flags and runs `main()` under absl, or `main(*paths)` for a program of positional arguments `paths`.

    A ValueError, an OSError, diverged training or a missing package ends the program with one line on stderr and status
    1. If the environment variable KERAS_ADAPTIVE_TRACEBACK is set, the error is raised. Ctrl-C ends the program with
    one line and status 130. Flags are defined by this function, not when a module is imported, so that two programs can
    use the same name.
    """
    keep_freed_memory()
    flush_denormals()
    define_flags()

    def guarded(arguments):
        logging.set_verbosity(logging.WARNING)
        in_one_line(lambda: main(*arguments[1:]))

    app.run(guarded, flags_parser=functools.partial(parse, paths=paths))


def keep_freed_memory():
    """Makes glibc keep freed memory for the next allocation, unless a MALLOC_… variable of the user configures it.

    An update on a CPU allocates all of its memory again, and Linux clears every new page, which takes up to a fifth of
    the time of an update. Threads that already allocate, in heaps of their own, are not affected.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ)
    if sys.platform == "linux" and not chosen and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        for option, value in KEEP_FREED_MEMORY.items():
            libc.mallopt(option, value)


def flush_denormals():
    """Makes PyTorch take numbers below 1e-38 for zero on a CPU, as TensorFlow and JAX do, unless it is not imported.

    Linear biases make the probabilities of far keys such numbers, with which a CPU is slow. Threads inherit the mode
    from the thread that starts them, so that it must be set before PyTorch starts its own.
    """
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(True)


def parse(arguments, paths=None):
    """Parses the flags of a command line, with flagfiles, and returns the other arguments; --help exits.

    An unknown flag, a missing flag or a bad value ends the program with one line and status 1, as does an argument that
    is not a flag if the program takes no `paths`.
    """
    if HELP.intersection(arguments[1:]):
        in_one_line(lambda: print(help_text(), flush=True))
        sys.exit(0)
    return in_one_line(lambda: _parse([arguments[0], *flagfiles.expand(arguments[1:])], paths))


def _parse(arguments, paths):
    try:
        rest = flags.FLAGS(arguments)
    except flags.Error as error:
        message = str(error).rstrip(".")
        raise ValueError(f"{message if len(message) < 400 else f'{message[:400]} …'}. {SEE_HELP}") from None
    if rest[1:] and not paths:
        raise ValueError(f"Unknown arguments: {rest[1:]}. Flags look like --name=value. {SEE_HELP}")
    if paths and not rest[1:]:
        raise ValueError(f"Give at least one {paths}. {SEE_HELP}")
    return rest


def help_text():
    """Returns the description of the program and of its flags. Flags of an experiment are grouped by part."""
    groups = [name for name in flags.FLAGS.flags_by_module_dict() if not name.startswith("absl")]
    groups.sort(key=lambda name: name != sys.argv[0])  # the flags of the program come first
    return "\n".join([sys.modules["__main__"].__doc__ or "", *map(flags.FLAGS.module_help, groups)])


def name_of_program():
    """Returns the name of the running program, with which its messages begin."""
    return os.path.splitext(os.path.basename(sys.argv[0]))[0]


def in_one_line(function):
    """Returns `function()`. Bad input or Ctrl-C ends the program with one line and status 1 or 130."""
    program = name_of_program()
    try:
        return function()
    except Exception as error:
        message = " ".join(str(error).split())
        short_of_memory = isinstance(error, MemoryError) or OUT_OF_MEMORY.search(message)
        if os.environ.get("KERAS_ADAPTIVE_TRACEBACK") or not (short_of_memory or isinstance(error, REPORTED)):
            raise
        if short_of_memory:
            message = f"The memory is too small ({message[:200]}). Use smaller batches or a smaller model."
        sys.exit(f"{program}: {message}")
    except KeyboardInterrupt:
        line = "\n" if sys.stdout.isatty() else ""  # the terminal shows ^C on the current line
        print(f"{line}{program}: interrupted.", file=sys.stderr)
        sys.exit(130)


def define_reading(values=flags.FLAGS):
    """Defines the flags of a program that reads texts of any length."""
    window = "Number of tokens of a window in which attention reads a long text; by default the length in training."
    flags.DEFINE_integer("window", None, window, 1, 2**24, values)
    context = "Number of tokens of a window that are read but not scored; by default half of it."
    flags.DEFINE_integer("context", None, context, 0, 2**24, values)


def define_memory():
    """Defines the flag of a program that mixes a memory with the probabilities of a model."""
    define_path("memory", None, "Memory of trainers.remember, which is mixed with the probabilities.")


class _Finite(flags.FloatParser):
    def convert(self, argument):
        value = super().convert(argument)
        if not math.isfinite(value):
            raise ValueError("must be a finite number.")
        return value


def define_float(name, default, help, least=None, most=None, values=flags.FLAGS, group=None):
    """Defines a flag whose value is a finite float. NaN and infinity are refused, since they pass comparisons."""
    parser, serializer = _Finite(least, most), flags.ArgumentSerializer()
    flags.DEFINE(parser, name, default, help, values, serializer, module_name=group)


class _Path(flags.ArgumentParser):
    syntactic_help = "a path"

    def parse(self, argument):
        if not argument:
            raise ValueError("must not be empty: is a variable of the shell unset?")
        return argument


class _Paths(flags.ListParser):
    def parse(self, argument):
        paths = super().parse(argument)
        if not paths or not all(paths):
            raise ValueError("must be paths with commas between them, none of which is empty")
        return paths


def define_path(name, default, help, values=flags.FLAGS, group=None, required=False, several=False):
    """Defines a flag whose value is a path, or which may be repeated if `several`.

    An empty path, which is the value of an unset variable of the shell, is refused.
    """
    if several:
        flags.DEFINE_multi(_Path(), flags.ArgumentSerializer(), name, default, help, values)
        return
    serializer = flags.ArgumentSerializer()
    flags.DEFINE(_Path(), name, default, help, values, serializer, module_name=group, required=required)


def define_paths(name, default, help, required=False):
    """Defines a flag whose value is a list of paths, separated by commas. Empty ones are refused."""
    flags.DEFINE(_Paths(), name, default, help, flags.FLAGS, flags.CsvListSerializer(","), required=required)
