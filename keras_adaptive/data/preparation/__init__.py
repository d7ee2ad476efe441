"""Preparation of text files: token ids on disk."""
