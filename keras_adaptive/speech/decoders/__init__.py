"""Language models for the search of speech recognizers."""
