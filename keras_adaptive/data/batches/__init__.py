"""Batches of tokens: blocks, sentences and evaluation windows."""
