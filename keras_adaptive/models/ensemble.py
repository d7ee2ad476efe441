import functools
from collections.abc import Sequence
from typing import Any, NoReturn, Self

import keras
import numpy as np
from keras import ops

from keras_adaptive.layers.bodies.body import Body
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.metrics.mixture import check_weights
from keras_adaptive.models.generation import Generation
from keras_adaptive.models.language_model import REQUIRES
from keras_adaptive.models.prediction import Cache
from keras_adaptive.models.reading import reading_of
from keras_adaptive.ops.word_ids import word_ids
from keras_adaptive.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_adaptive")
class Ensemble(Generation):
    """Ensemble of language models: the weighted mean of their probabilities, for prediction.

    The members may have any parts but must share one vocabulary. The ensemble has the predicting methods of a
    `LanguageModel`: `nll`, `log_probs`, `score`, `alternatives`, `generate`, `stream` and `predict`. The cost is the
    sum of the members' costs. `keras_adaptive.metrics.mixture_weights` finds the best weights for a text.

    Args:
        models: List of `LanguageModel`s, at least one.
        weights: Weights of the members, which add up to 1. By default they are equal.

    Raises:
        ValueError: If the members differ in their number of words, or the weights are negative or do not add up to 1.

    Reference:
        Jozefowicz et al., Exploring the Limits of Language Modeling, 2016, section 5.7.

    Example:

    >>> sizes = {"dim": 16, "num_blocks": 1, "num_heads": 2, "ffn_dim": 32, "cutoffs": ()}
    >>> models = [transformer_lm(1_000, **sizes) for _ in range(2)]
    >>> text = np.random.randint(0, 1_000, size=(8, 6))
    >>> nll = np.stack([model.nll(text[:, :-1], text[:, 1:]).ravel() for model in models])
    >>> ensemble = Ensemble(models, mixture_weights(nll))
    >>> ensemble.nll(text[:, :-1], text[:, 1:]).shape
    (8, 5)
    """

    def __init__(
        self, models: Sequence[Generation], weights: Sequence[float] | np.ndarray | None = None, **kwargs: Any
    ) -> None:
        models = list(models)
        _check(models)
        weights = np.full(len(models), 1 / len(models)) if weights is None else check_weights(weights, len(models))
        body, word_output = _Members(models), _Mixture(models, weights)
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        super().__init__(inputs=tokens, outputs=word_output(body(tokens), return_hidden=True), **kwargs)
        self.body = body
        self.word_output = word_output
        self._functions = Cache()

    @property
    def models(self) -> list[Generation]:
        """List of the members."""
        return list(self.body.models)

    @property
    def trained_length(self) -> int | None:
        """Number of tokens of the shortest windows in which a member reads, `None` if all read a text as a whole."""
        return min(filter(None, (reading_of(model).window for model in self.models)), default=None)

    @property
    def vocabulary_size(self) -> int:
        """Number of ids in the output."""
        return self.word_output.vocabulary_size

    @property
    def input_vocabulary_size(self) -> int:
        """Number of ids in the input, as in `LanguageModel`."""
        return self.body.models[0].input_vocabulary_size

    def call(self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None, state: Any = None) -> Any:
        """Concatenates the hidden states that `LanguageModel.call` computes for each member."""
        if state is None:  # Keras would cast the ids to int32, which wraps
            inputs = keras.tree.map_structure(lambda ids: word_ids(ids, self.input_vocabulary_size), inputs)
            return super().call(inputs, training=training, mask=mask)
        return self.body.step(inputs, state, training=bool(training))

    def _vectors(self, tokens):
        return tokens  # each member has an input of its own

    def for_inference(self, extra_words: Sequence[str] | None = None) -> "Ensemble":
        """Returns the ensemble of the members' models for inference; see `LanguageModel.for_inference`."""
        return Ensemble([model.for_inference(extra_words) for model in self.models], self.word_output.shares)

    def compile(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises `NotImplementedError`: train the members instead."""
        raise NotImplementedError("An Ensemble is not trained: compile and train its members.")

    def get_config(self) -> dict[str, Any]:
        models = [keras.saving.serialize_keras_object(model) for model in self.models]
        return {"name": self.name, **REQUIRES, "models": models, "weights": self.word_output.shares.tolist()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Self:
        config = {key: value for key, value in config.items() if key not in REQUIRES}
        models = [keras.saving.deserialize_keras_object(model, custom_objects) for model in config["models"]]
        return cls(**{**config, "models": models})


def _check(models):
    """Raises a `ValueError` unless all members are language models with the same numbers of words."""
    if not models:
        raise ValueError("An ensemble must have at least one model. Received: models=[].")
    for model in models:
        if not isinstance(model, Generation):
            raise ValueError(f"The members of an ensemble must be `LanguageModel`s. Received: {type(model).__name__}.")
    sizes = [(model.input_vocabulary_size, model.vocabulary_size) for model in models]
    for number, size in enumerate(sizes):
        if size != sizes[0]:
            raise ValueError(
                "The members of an ensemble must have one vocabulary. Received: `models[0]` with "
                f"{sizes[0][0]:,} words to read and {sizes[0][1]:,} to predict, and `models[{number}]` with "
                f"{size[0]:,} and {size[1]:,}."
            )


class _Members(Body):
    """Maps ids (batch, length) to the concatenated hidden states of all models.

    Args:
        models: List of `LanguageModel`s.
    """

    def __init__(self, models):
        super().__init__(dtype="float32", name="members")  # TensorFlow allows no underscore at the beginning
        self.models = models
        self.output_dim = sum(map(_dim, models))
        self.max_length = min((model.body.max_length for model in models if model.body.max_length), default=None)
        self.extrapolates = all(model.body.extrapolates for model in models)

    def initial_state(self, batch_size, length=None):
        return [model.body.initial_state(batch_size, length) for model in self.models]

    def step(self, x, state, training=False):
        hidden, states = zip(*(model(x, state=part, training=training) for model, part in zip(self.models, state)))
        return self._joined(hidden), list(states)

    def call(self, x, training=None):
        return self._joined([model(x, training=training) for model in self.models])

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.output_dim)

    def _joined(self, hidden):
        return ops.concatenate([ops.cast(part, "float32") for part in hidden], axis=-1)


class _Mixture(Output):
    """Weighted mean of the probabilities of the models, given their concatenated hidden states, in float32.

    Args:
        models: List of `LanguageModel`s.
        shares: Weights of the models, a float64 array.
    """

    def __init__(self, models, shares):
        super().__init__(dtype="float32")
        self.shares = shares
        self.outputs_of_members = [model.word_output for model in models]
        self.vocabulary_size = models[0].vocabulary_size
        self.boundaries = (0, self.vocabulary_size)
        self._ends = np.cumsum([_dim(model) for model in models])[:-1].tolist()
        with np.errstate(divide="ignore"):  # the logarithm of a weight of 0
            self._log_shares = np.log(shares).tolist()

    def compute_nll(self, x, targets):
        return -self._mixed(x, lambda output, part: -output.nll(part, targets))

    def compute_log_probs(self, x):
        return self._mixed(x, lambda output, part: output.log_probs(part))

    def _mixed(self, x, log_prob):
        """Returns log Σ share · exp(log_prob(output, hidden states)) over the members."""
        parts = zip(self.outputs_of_members, ops.split(x, self._ends, axis=-1), self._log_shares)
        return functools.reduce(ops.logaddexp, (log_prob(output, part) + share for output, part, share in parts))


def _dim(model):
    """Returns the dimension of the hidden states of a model."""
    return model.outputs[0].shape[-1]
