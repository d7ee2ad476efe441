"""Memories of trained runs, and models that mix them with their probabilities."""

from keras_adaptive.memory import Memory, remembering
from trainers.experiments.word_losses import digest


def read_memory(folder, run, vocabulary, model="best"):
    """Returns the `Memory` of a folder, which must be one of a model of this run."""
    return Memory.load(folder, {"model": digest(run.model_file(model)), "vocabulary": vocabulary.sha256})


def model_with_memory(run, model, memory=None):
    """Returns the "best" or "last" model of a run, mixed with the memory of a folder if given."""
    if not memory:
        return run.model(model)
    return remembering(run.model(model), read_memory(memory, run, run.codec.vocabulary, model))
