"""Systems of a comparison. A system is a flagfile of trainers.train and has the name of the file."""

import glob
from pathlib import Path

PIECES = "bpe"  # prefix of the names of systems of sub-words


def read(flagfiles, data_dir, subword_dir=None):
    """Returns `{name: arguments of trainers.train}` for flagfiles, in their order.

    A flagfile may be a pattern such as "configs/books_comparison/*.flags", which stands for all matching files. A
    system whose name begins with "bpe" reads the corpus of sub-words.
    """
    systems = {}
    for path in (Path(path) for pattern in flagfiles for path in sorted(glob.glob(pattern)) or [pattern]):
        if not path.is_file():
            raise ValueError(f"--flagfiles must be flagfiles of trainers.train. {path} is missing.")
        if path.stem in systems:
            raise ValueError(f"--flagfiles must have different names. Two are named {path.stem}: rename one.")
        pieces = path.stem.startswith(PIECES)
        if pieces and not subword_dir:
            raise ValueError(
                f"{path} is a system of sub-words: pass --subword_dir, a corpus of the same text made by `python -m "
                f"trainers.prepare --subwords`, or rename the file so that its name does not begin with {PIECES}."
            )
        systems[path.stem] = [f"--flagfile={path}", f"--data_dir={subword_dir if pieces else data_dir}"]
    if not systems:
        raise ValueError("--flagfiles must contain at least one system.")
    return systems
