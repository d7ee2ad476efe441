import keras
from keras import ops

from keras_adaptive.backend.fused_adam import FusedAdam
from keras_adaptive.backend.sparse.optimizers import RowUpdates
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class LazyAdam(RowUpdates, FusedAdam):
    """Implements Adam with lazy updates: an update changes only those rows of an embedding table that it reads.

    Adam changes every row in every update, because the moments of a row outlast its gradient. It therefore reads and
    writes whole tables. This optimizer changes a row, and its moments, only in updates in which the row has a gradient,
    so that the cost of an update does not depend on the size of the vocabulary. All other weights are updated as in
    `keras.optimizers.Adam`.

    A `LanguageModel` or `WordModel` updates a table by rows if all of its layers read the table by rows, as
    `WordEmbedding`, `AdaptiveEmbedding` and `SampledSoftmax` do. Everywhere else, this is plain Adam.

    Args:
        **kwargs: The arguments of `keras.optimizers.Adam`.

    Reference:
        Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015; `LazyAdam` of TensorFlow Addons and
        `SparseAdam` of torch.

    Example:

    ```python
    model.compile(LazyAdam(1e-3, global_clipnorm=1.0))
    ```
    """

    row_slots = ("_momentums", "_velocities")

    def row_changes(self, gradient: Tensor, slots: list[Tensor], learning_rate: Tensor) -> tuple[Tensor, list[Tensor]]:
        momentums, velocities = slots
        step = ops.cast(self.iterations + 1, gradient.dtype)
        rate = learning_rate * ops.sqrt(1 - ops.power(self.beta_2, step)) / (1 - ops.power(self.beta_1, step))
        of_momentums = (1 - self.beta_1) * (gradient - momentums)
        of_velocities = (1 - self.beta_2) * (ops.square(gradient) - velocities)
        change = -rate * (momentums + of_momentums) / (ops.sqrt(velocities + of_velocities) + self.epsilon)
        read = ops.any(gradient != 0, axis=tuple(range(1, len(gradient.shape))), keepdims=True)
        return ops.where(read, change, 0.0), [ops.where(read, moment, 0.0) for moment in (of_momentums, of_velocities)]
