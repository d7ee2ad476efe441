"""Differences between TensorFlow, JAX and PyTorch. Only this package and `ops` may ask which backend runs."""
