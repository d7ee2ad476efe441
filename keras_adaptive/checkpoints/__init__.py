"""Parts that the readers of published checkpoints share: files by allowlists, and tensors beside variables."""
