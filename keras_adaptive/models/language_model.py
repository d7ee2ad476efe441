from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_adaptive.backend.checks import check_rows
from keras_adaptive.backend.optimizer_step import inner_optimizer
from keras_adaptive.layers.bodies.body import Body
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.layers.outputs.unsorted_ids import warn_if_unsorted
from keras_adaptive.layers.quantizable import Quantizable, check_floats, float_policy
from keras_adaptive.metrics.rank_metric import RankMetric
from keras_adaptive.models.generation import Generation
from keras_adaptive.models.prediction import Cache
from keras_adaptive.models.reading import check_trained_length
from keras_adaptive.models.stream_state import StreamState
from keras_adaptive.models.training_step import PARTS, TrainingStep
from keras_adaptive.ops.word_ids import count_outside, word_ids
from keras_adaptive.typing import Tensor

# Keras prints the config if it cannot find the classes of a file.
REQUIRES = {"requires": "import keras_adaptive, before the model is loaded"}


@keras.saving.register_keras_serializable(package="keras_adaptive")
class LanguageModel(TrainingStep, Generation):
    """Language model of three parts: input, body and output.

    The model is a functional `keras.Model` from token ids to hidden states. Its output layer maps the hidden states to
    the probabilities of the next word. `model(tokens)` returns the hidden states, and `predict` the log-probabilities
    of the word that follows each row. See also `nll`, `log_probs`, `score` and `generate`.

    `compile(optimizer)` needs no loss: the loss is the mean negative log-likelihood per target in nats, plus, in
    training, the losses of the layers themselves (`add_loss`, regularizers). `fit` and `evaluate` take `(tokens,
    targets)` or `(tokens, targets, weights)` with weight 0 for padding. They log `loss` and `perplexity`, without the
    losses of layers; both are over all targets since the start of the epoch, never means of batches. Evaluations can
    report metrics of ranks, such as `HitRate(10)`, too. Training also logs `gradient_norm` (of the last update, before
    clipping) and `skipped`, the number of updates of this epoch whose loss or gradient was not finite. Such an update
    changes neither weights nor optimizer. Its loss is logged but does not enter the means (`TerminateOnNonFinite` stops
    after several in a row).

    A batch of `fit` is one update. `compile(optimizer, micro_batches=k)` computes the batch in k parts to save memory
    (gradient accumulation). The update is the same, whatever the number of targets in each part. Several devices, which
    `keras_adaptive.distribution.start` prepares, compute the same update too: numbers of targets, losses and gradients
    are summed over all replicas.

    Args:
        word_input: An `Input` layer from ids (batch, length) to vectors (batch, length, input_dim).
        body: A `Body` layer from vectors to hidden states (batch, length, dim).
        word_output: An `Output` layer from hidden states to the probability of the next word.
        trained_length: Number of tokens of the longest rows that the model was trained on. `fit` raises it to the
            length of its own rows. Bodies with attention read longer texts in windows of this length. Optional.

    Raises:
        ValueError: If token ids are outside the vocabulary. Arrays are checked at once. In the batches of data sets and
            generators, `fit` and `evaluate` count such ids, skip the updates, and raise at the end of the epoch.

    Example:

    >>> model = transformer_lm(1_000, dim=16, num_blocks=1, num_heads=2, ffn_dim=32, cutoffs=(100, 400))
    >>> model.compile(NAG(0.1, momentum=0.9, global_clipnorm=0.1))
    >>> stream = np.random.randint(0, 1_000, size=(8, 6))
    >>> history = model.fit(stream[:, :-1], stream[:, 1:], batch_size=4, verbose=0)
    >>> model.generate(stream[:1, :4], length=10, seed=1).shape
    (1, 10)
    """

    def __init__(
        self,
        word_input: Input,
        body: Body,
        word_output: Output | None = None,
        *args: Any,
        trained_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        if word_output is None:  # `keras.models.clone_model` passes the inputs and outputs of a copied graph
            _, word_input, body, word_output = keras.Model(word_input, body).layers
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        hidden = word_output(body(word_input(tokens)), return_hidden=True)
        super().__init__(inputs=tokens, outputs=hidden, **kwargs)
        self.dtype_policy = float_policy(body)  # Keras scales the loss by this policy
        self.word_input = word_input
        self.body = body
        self.word_output = word_output
        self.trained_length = trained_length
        for part in (word_input, body, word_output):
            if not part.trainable:  # the config of a frozen part freezes none of the layers in it
                part.trainable = True  # TensorFlow ignores a value that is set again
                part.trainable = False
        self._make_trackers()
        self._functions = Cache()

    @property
    def vocabulary_size(self) -> int:
        """Number of ids in the output."""
        return self.word_output.vocabulary_size

    @property
    def input_vocabulary_size(self) -> int:
        """Number of ids in the input, which exceeds `vocabulary_size` in a model for inference with extra words."""
        return self.word_input.vocabulary_size

    @property
    def trained_length(self) -> int | None:
        """Number of tokens of the longest rows that the model was trained on, `None` if it is unknown."""
        return self._trained_length

    @trained_length.setter
    def trained_length(self, length: int | None) -> None:
        self._trained_length = check_trained_length(length)

    def call(self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None, state: Any = None) -> Any:
        """Computes the hidden states, from the beginning of the text or from a state.

        Args:
            inputs: Token ids (batch, length). An id outside the vocabulary gives a zero vector.
            training: Whether to apply dropout.
            mask: Mask of the inputs, which the layers of this package ignore.
            state: The result of `body.initial_state`, or the state of an earlier call. Optional.

        Returns:
            The hidden states (batch, length, dim). With a state, `(hidden, state)` with the state after `inputs`.

        Raises:
            ValueError: If the state has another batch size than `inputs`.
        """
        if state is None:  # Keras would cast the ids to int32, which wraps
            inputs = keras.tree.map_structure(lambda ids: word_ids(ids, self.input_vocabulary_size), inputs)
            return super().call(inputs, training=training, mask=mask)
        check_rows(state, inputs.shape[0])
        return self.body.step(self.word_input(inputs), state, training=bool(training))

    def for_inference(self, extra_words: Sequence[str] | None = None) -> "LanguageModel":
        """Returns a model for prediction that computes everything that depends only on the weights once.

        Args:
            extra_words: List of words outside the vocabulary, whose ids follow it. For a `CharCNN` input only.

        Returns:
            The model itself, or a model with the same body and with tables of the vectors of its character CNNs.

        Raises:
            ValueError: If extra words are given, even an empty list, to an input that reads ids only.
        """
        word_input, word_output = self.word_input.for_inference(extra_words), self.word_output.for_inference()
        if word_input is self.word_input and word_output is self.word_output:
            return self
        return LanguageModel(word_input, self.body, word_output, trained_length=self.trained_length)

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        metrics: RankMetric | Sequence[RankMetric] | None = None,
        *,
        micro_batches: int = 1,
        exclude_input: str | None = None,
        stream_rows: int | None = None,
        clip_parts: Sequence[str] = PARTS,
        **kwargs: Any,
    ) -> None:
        """Configures training as `keras.Model.compile` does; the model has its own loss.

        Args:
            optimizer, micro_batches, **kwargs: As in `WordModel.compile`.
            metrics: List of metrics of ranks, such as `HitRate(10)`, which `evaluate` reports, as in
                `WordModel.compile`. `HitRate(1)` is the accuracy.
            exclude_input: "tokens" for ranks among the words that are not at the position of the target or before it in
                its row, as recommenders need them. Optional.
            stream_rows: Number of rows of a batch, over all replicas, if each row continues the text of the same row
                of the previous batch (truncated back-propagation through time). The model then carries the body's
                state from batch to batch, in separate variables for `fit` and `evaluate`.
            clip_parts: Names of the parts whose gradients `global_clipnorm` bounds by one common norm: some of
                `word_input`, `body` and `word_output`. The gradients of the other parts are not clipped.

        Raises:
            ValueError: If a loss or other metrics are given, the optimizer accumulates gradients itself, `clip_parts`
                is invalid, or `stream_rows` is given and the state of the body needs a length.
        """
        if not clip_parts or set(clip_parts) - set(PARTS):
            raise ValueError(f"`clip_parts` must be one or more of {PARTS}. Received: clip_parts={clip_parts}.")
        optimizer = keras.optimizers.get(optimizer)
        bounded = inner_optimizer(optimizer).global_clipnorm and self.trainable_variables
        if bounded and not any(getattr(self, name).trainable_variables for name in clip_parts):
            raise ValueError(
                "`clip_parts` must have a part that is trained: otherwise, no gradient is clipped. "
                f"Received: clip_parts={tuple(clip_parts)}, all of which are frozen. Choose other parts."
            )
        self.clip_parts = tuple(clip_parts)
        self._make_streams(stream_rows)
        super().compile(optimizer, metrics, micro_batches=micro_batches, exclude_input=exclude_input, **kwargs)

    def _make_streams(self, rows):
        if (self.train_streams and self.train_streams.rows) == rows:
            return
        del self.train_streams, self.test_streams  # Keras then no longer tracks them
        self.train_streams = self.test_streams = None
        if rows is not None:
            self.train_streams = StreamState(self.body, rows, name="train_streams")
            self.test_streams = StreamState(self.body, rows, name="test_streams")

    def get_compile_config(self) -> dict[str, Any] | None:
        config = super().get_compile_config()
        rows = self.train_streams and self.train_streams.rows
        return config and {**config, "stream_rows": rows, "clip_parts": self.clip_parts}

    def _train(self, data):
        check_floats(self, "Training")
        tokens, begins, *_ = self._unpack(data)
        if begins is None:  # the rows of streams continue others
            self.trained_length = max(self.trained_length or 0, tokens.shape[1] or 0) or None
        return super()._train(data)

    def _unpack(self, data):
        tokens, begins, targets, weights = super()._unpack(data)
        if isinstance(tokens, (tuple, list)):
            tokens, begins = tokens
            begins = ops.cast(begins, "bool")
        return tokens, begins, targets, weights

    def _hidden(self, inputs, state, training):
        if not keras.tree.flatten(state):
            return super()._hidden(inputs, (), training)
        return self(inputs, state=state, training=training)

    def _count_outside(self, inputs, targets, weights):
        count = super()._count_outside(inputs, targets, weights)
        return count if inputs is None else count + count_outside(inputs, self.input_vocabulary_size)

    def _row_layers(self):
        return self.word_input, self.word_output

    def fit(self, x: Any = None, y: Any = None, **kwargs: Any) -> keras.callbacks.History:
        """Trains the model as `keras.Model.fit` does; each batch is one update.

        The first call warns if the first targets are not in descending order of their counts, but should be.

        Args:
            x: Token ids (batch, length), or a data set or generator of batches `(tokens, targets)` or
                `(tokens, targets, weights)`.
            y: Target ids (batch, length), for arrays.
            **kwargs: Other arguments of `keras.Model.fit`.

        Returns:
            A `keras.callbacks.History`.

        Raises:
            ValueError: If there are no rows, tokens or targets, or on class weights.
        """
        x, y = self._checked(x, "tokens"), self._checked(y, "targets")
        return super().fit(warn_if_unsorted(self, self.word_output, x, y, kwargs.get("sample_weight")), y, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        """Evaluates the model as `keras.Model.evaluate` does: mean loss per target in nats, and perplexity.

        Args:
            x, y: As in `fit`.
            **kwargs: Other arguments of `keras.Model.evaluate`.

        Returns:
            The list `[loss, perplexity, …]` with the metrics of `compile`, or a dict with `return_dict=True`.
        """
        x, y = self._checked(x, "tokens"), self._checked(y, "targets")
        word_output = self.word_output.for_inference()
        if word_output is self.word_output:
            return super().evaluate(x, y, **kwargs)
        kwargs.pop("_use_cached_eval_dataset", None)  # `fit` caches an iterator for this model
        return self._evaluator(word_output).evaluate(x, y, **kwargs)

    def _evaluator(self, word_output):
        """Returns a model with the same input and body and an output for inference, which all evaluations share."""
        rows = self.test_streams and self.test_streams.rows
        options = {name: getattr(self, name) for name in ("run_eagerly", "jit_compile", "steps_per_execution")}
        options |= {"metrics": tuple(self.ranking.metrics), "exclude_input": self.ranking.exclude_input}

        def make():
            model = LanguageModel(self.word_input, self.body, word_output)
            model.compile(keras.optimizers.SGD(), stream_rows=rows, **options)
            return model

        model = self._functions.get(("evaluator", rows, *options.values()), make)
        if model.word_output is not word_output:
            model.word_output.set_weights(word_output.get_weights())
        return model

    def quantize(self, mode: str | None = None, config: Any = None, **kwargs: Any) -> None:
        """Stores word tables, softmax and dense layers in 8 or 4 bits; biases and LayerNorms stay floats.

        Weights become floats when they are used, so that all predictions are exact for the rounded weights, on every
        backend. Files of the model are as small, and load in 8 or 4 bits again. The model can no longer be trained.

        Args:
            mode: "int8" or "int4".
            config: As in `Quantizable.quantize`. Optional.

        Raises:
            ValueError: If an input or output has no word tables, such as a `CharCNN`, the model is quantized already,
                or an argument is another one.

        Example:

        >>> model = transformer_lm(1_000, dim=16, num_blocks=1, num_heads=2, ffn_dim=32, cutoffs=(100, 400))
        >>> model.quantize("int8")
        >>> model.log_probs(np.array([[1, 2, 3]])).shape
        (1, 3, 1000)
        """
        if kwargs:
            raise ValueError(f"`quantize` takes `mode` and `config` only. Received: {', '.join(kwargs)}.")
        check_floats(self, "`quantize`")
        for part in (self.word_input, self.word_output):
            if not isinstance(part, Quantizable):
                raise ValueError(
                    "`quantize` needs tables of word vectors; `model.for_inference()` has them for the words of a "
                    f"character CNN. Received: a {type(part).__name__}."
                )
        for part in (self.word_input, self.body, self.word_output):
            if part.quantization_mode is None:  # a tied input was quantized with the output
                part.quantize(mode, config=config)
        self.train_function = self.test_function = self.predict_function = None
        self._functions = Cache()
        self._post_quantize(mode)

    def save_own_variables(self, store: Any) -> None:
        """Stores the state of dropout's seeds, which Keras omits, so that a loaded model trains bit-identically."""
        for number, seed in enumerate(self._seeds()):
            store[str(number)] = ops.convert_to_numpy(seed)

    def load_own_variables(self, store: Any) -> None:
        for number, seed in enumerate(self._seeds()):
            seed.assign(store[str(number)])

    def _seeds(self):
        """Returns the variables that are neither weights nor the state of streams."""
        known = set(map(id, self.weights))
        for streams in (self.train_streams, self.test_streams):
            if streams:
                known.update(map(id, streams.variables))
        return [variable for variable in self.non_trainable_variables if id(variable) not in known]

    def get_config(self) -> dict[str, Any]:
        parts = {"word_input": self.word_input, "body": self.body, "word_output": self.word_output}
        serialized = {key: keras.saving.serialize_keras_object(part) for key, part in parts.items()}
        return {"name": self.name, **REQUIRES, **serialized, "trained_length": self.trained_length}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Self:
        config = {key: value for key, value in config.items() if key not in REQUIRES}
        names = ("word_input", "body", "word_output")
        parts = {name: keras.saving.deserialize_keras_object(config[name], custom_objects) for name in names}
        return cls(**{**config, **parts})
