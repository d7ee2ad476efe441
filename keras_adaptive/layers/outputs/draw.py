from keras import ops


def draw(logits, uniform):
    """Draws from softmax(logits) by its cumulative distribution: (…, classes) and (…) in [0, 1) to (…) int32."""
    cumulative = ops.cumsum(ops.exp(logits - ops.max(logits, axis=-1, keepdims=True)), axis=-1)
    below = cumulative <= uniform[..., None] * cumulative[..., -1:]
    return ops.minimum(ops.sum(ops.cast(below, "int32"), axis=-1), logits.shape[-1] - 1)
