"""Colors, style and files of all pictures.

Pictures need matplotlib, which is optional: import this package inside the function that draws.
"""

import os

try:
    import matplotlib
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        'Pictures need matplotlib: pip install "keras_adaptive[plots]".', name="matplotlib"
    ) from None

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

TRAIN, VALID, MUTED = "#3b6fb6", "#d1632a", "#6b6b6b"
STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "grid.color": "#e3e3e3",
    "legend.frameon": False,
    "savefig.dpi": 150,
}


def draw(plot, path, *arguments):
    """Writes the figure that `plot(*arguments)` returns to the file `path`, in the common style."""
    from keras_adaptive.files import commit, partial, writing  # not at the top: it imports Keras and its backend

    with plt.rc_context(STYLE), writing(path):
        figure = plot(*arguments)
        figure.savefig(partial(path), format=os.path.splitext(path)[1][1:])
        plt.close(figure)
        commit(path)


def bin_label(part):
    """Returns the label of a bin: {"low": 10, "high": 100} -> "10 – 99", and {"low": 10, "high": None} -> "10 +"."""
    low, high = part["low"], part["high"]
    if high is None:
        return f"{low:,} +"
    return f"{low:,}" if high == low + 1 else f"{low:,} – {high - 1:,}"
