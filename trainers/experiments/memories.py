"""Memories of trained runs, and models that mix them with their probabilities."""

from keras_adaptive.memory import Memory, datastore, remembering
from trainers.experiments.word_losses import digest


def read_memory(folder, run, vocabulary, model="best", text=None):
    """Returns the `Memory` of a folder, which must be one of a model of this run, and not of the text to evaluate."""
    facts = datastore.read_facts(folder)
    memory = Memory.load(folder, {"model": digest(run.model_file(model)), "vocabulary": vocabulary.sha256})
    if "settings" not in facts:
        raise ValueError(f"{folder} has not been tuned: run the command that makes it again.")
    check_other_text(facts["text"], text)
    return memory


def check_other_text(remembered, text):
    """Raises a ValueError if a memory has the text that it is tuned or evaluated on, and would find every word."""
    if remembered == text:
        raise ValueError(
            "A memory must have another text than the one it is tuned or evaluated on, since it would find every word "
            "of its own: pass another --split, or the memory of another text."
        )


def model_with_memory(run, model, memory=None):
    """Returns the "best" or "last" model of a run, mixed with the memory of a folder if given."""
    if not memory:
        return run.model(model)
    return remembering(run.model(model), read_memory(memory, run, run.codec.vocabulary, model))
