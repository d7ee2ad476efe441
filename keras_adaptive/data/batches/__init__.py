"""Batches of tokens: blocks, sentences, streams and evaluation windows."""
