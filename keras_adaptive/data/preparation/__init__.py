"""Text files to token ids on disk."""
