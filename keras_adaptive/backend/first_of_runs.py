from keras import ops


def first_of_runs(ids):
    """Returns whether each element of a sorted tensor (n,) is the first of its value, bool (n,)."""
    return ops.concatenate([ids[:1] == ids[:1], ids[1:] != ids[:-1]])
