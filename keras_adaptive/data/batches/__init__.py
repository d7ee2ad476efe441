"""Tokens to batches: blocks, sentences and evaluation windows."""
