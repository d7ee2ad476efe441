from keras import ops

from keras_adaptive.backend.custom_vjp import custom_vjp


def split_rows(tensor, boundaries):
    """Cuts a tensor along its first axis into slices whose gradients are joined by one concatenation.

    Slices that are taken one by one would each get a gradient of the size of the whole tensor, padded with zeros, and
    the sum of these. Under torch the slices are views. Under TensorFlow they share the memory of the tensor if they
    begin at a multiple of 64 bytes. Under JAX they are copies.

    Args:
        tensor: Float tensor (rows, …).
        boundaries: Increasing integers `(0, …, rows)`, the first row of each slice and, last, the number of rows.

    Returns:
        A tuple of tensors.
    """

    def forward(tensor):
        return tuple(tensor[low:high] for low, high in zip(boundaries, boundaries[1:])), ()

    def backward(residuals, upstream):
        return [ops.concatenate(upstream, axis=0)]

    return custom_vjp(forward, backward)(ops.convert_to_tensor(tensor))
