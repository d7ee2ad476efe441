import keras
from keras import ops

from keras_adaptive.backend.fused_adam import FusedAdam
from keras_adaptive.backend.row_updates import RowUpdates


@keras.saving.register_keras_serializable(package="keras_adaptive")
class LazyAdam(RowUpdates, FusedAdam):
    """Adam that leaves the vectors of words as they are which an update does not read.

    Adam moves every word in every update, since its moments outlast the gradient, and so reads and writes whole tables.
    Here a row of a table changes, with its moments, only in updates in which it has a gradient, which cost the same
    whatever the size of the vocabulary. The steps of all other weights are those of `keras.optimizers.Adam`.

    A table is updated by rows by `LanguageModel` and `WordModel`, where the model reads it by rows: `WordEmbedding`,
    `AdaptiveEmbedding` and `SampledSoftmax` do. Elsewhere this is Adam.

    Reference:
        Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015; as the `LazyAdam` of TensorFlow Addons and
        the `SparseAdam` of torch.

    Args:
        **kwargs: The arguments of `keras.optimizers.Adam`.

    Example:

    ```python
    model.compile(LazyAdam(1e-3, global_clipnorm=1.0))
    ```
    """

    row_slots = ("_momentums", "_velocities")

    def row_changes(self, gradient, slots, learning_rate):
        momentums, velocities = slots
        step = ops.cast(self.iterations + 1, gradient.dtype)
        rate = learning_rate * ops.sqrt(1 - ops.power(self.beta_2, step)) / (1 - ops.power(self.beta_1, step))
        of_momentums = (1 - self.beta_1) * (gradient - momentums)
        of_velocities = (1 - self.beta_2) * (ops.square(gradient) - velocities)
        change = -rate * (momentums + of_momentums) / (ops.sqrt(velocities + of_velocities) + self.epsilon)
        read = ops.any(gradient != 0, axis=tuple(range(1, len(gradient.shape))), keepdims=True)
        return ops.where(read, change, 0.0), [ops.where(read, one, 0.0) for one in (of_momentums, of_velocities)]
