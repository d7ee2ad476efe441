"""Systems of a comparison: flagfiles of trainers.train, each named by its file."""

import glob
from pathlib import Path

PIECES = "bpe"  # how the names of systems of sub-words begin


def read(flagfiles, data_dir, subword_dir=None):
    """Returns `{name: arguments of trainers.train}` of the flagfiles, in their order.

    A flagfile may be a pattern such as "configs/books_comparison/*.flags", which stands for all files that match. A
    system whose name begins with "bpe" reads the corpus of sub-words.

    Raises:
        ValueError: if a flagfile is missing, if two have one name, or if a system needs `subword_dir`.
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
                f"{path} is of sub-words: pass --subword_dir, a corpus made by `python -m trainers.prepare --subwords` "
                f"of the same text, or rename it if its name should not begin with {PIECES}."
            )
        systems[path.stem] = [f"--flagfile={path}", f"--data_dir={subword_dir if pieces else data_dir}"]
    if not systems:
        raise ValueError("--flagfiles must name one system at least.")
    return systems
