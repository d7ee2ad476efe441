"""Special words that every vocabulary begins with, and their ids."""

SPECIAL_WORDS = ("<s>", "<pad>", "</s>", "<unk>")
BOS, PAD, EOS, UNK = range(4)
