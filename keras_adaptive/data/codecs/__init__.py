"""Units of text: the vocabulary, words and sub-words."""
