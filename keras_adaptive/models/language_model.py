import keras
import numpy as np
from keras import ops

from keras_adaptive import generation
from keras_adaptive.backend.compiled import compiled
from keras_adaptive.backend.gradients import apply_gradients, value_and_gradients
from keras_adaptive.backend.replicas import averaged_by_keras, on_each_replica, sum_over_replicas
from keras_adaptive.metrics.perplexity import Perplexity
from keras_adaptive.ops.bands import check_ids
from keras_adaptive.ops.global_norm import global_norm


@keras.saving.register_keras_serializable(package="keras_adaptive")
class LanguageModel(keras.Model):
    """A word model of three parts: words in, a body, words out.

    A functional `keras.Model` from token ids to hidden vectors, plus the output layer that turns those into the
    probability of the next word. `compile(optimizer)` needs no loss: the loss is the mean negative log-likelihood per
    target in nats. `fit` and `evaluate` take `(tokens, targets)` or `(tokens, targets, weights)` with weight 0 for
    padding, and log `loss`, `perplexity` (both over all targets since the start of the epoch, never a mean of
    batches) and, in training, `gradient_norm` (of the last update, before clipping) and `skipped`: how many updates of
    this epoch had a loss or gradient that is not finite. Such an update changes neither weights nor optimizer, and a
    loss that is not finite is logged, but kept out of the means (`TerminateOnNonFinite` stops after some in a row).

    A batch given to `fit` is one update: `compile(optimizer, micro_batches=k)` works it off in k parts to save
    memory and gives the same update, whatever the number of real targets in each part. So do several devices that
    `keras_adaptive.distribution.start` prepares: numbers of targets, losses and gradients are sums over all of them.

    Args:
        word_input: layer from ids (batch, length) to vectors (batch, length, input_dim).
        body: layer from vectors to hidden vectors (batch, length, dim), with `initial_state` and `step`.
        word_output: layer with `total_nll`, `nll`, `log_probs`, `top_k` and `sample`.

    Raises:
        ValueError: when token ids given as an array lie outside the vocabulary.

    Example:

    >>> model = transformer_lm(10_000, dim=64, num_blocks=2, num_heads=4, ffn_dim=256, cutoffs=(1_000, 4_000))
    >>> model.compile(NAG(0.1, momentum=0.9, global_clipnorm=0.1))
    >>> tokens, targets = np.random.randint(10_000, size=(2, 64, 16))  # (sequences, length) each
    >>> history = model.fit(tokens, targets, batch_size=32, verbose=0)
    >>> model.generate(tokens[:1, :4], length=10, seed=1).shape
    (1, 10)
    """

    def __init__(self, word_input, body, word_output, **kwargs):
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        hidden = body(word_input(tokens))
        super().__init__(inputs=tokens, outputs=hidden, **kwargs)
        self.dtype_policy = body.dtype_policy  # by which Keras decides to scale the loss
        word_output.build(hidden.shape)
        self.word_input = word_input
        self.body = body
        self.word_output = word_output
        self.loss_tracker = _of_all_replicas(keras.metrics.Mean)(name="loss")
        self.perplexity_tracker = _of_all_replicas(Perplexity)(name="perplexity")
        self.skipped_tracker = _of_all_replicas(keras.metrics.Sum)(name="skipped")
        self.micro_batches = 1
        self._compiled_functions = {}

    @property
    def vocabulary_size(self):
        """Number of ids that come out."""
        return self.word_output.vocabulary_size

    @property
    def words_in(self):
        """Number of ids that go in: more than come out when a model for inference was given extra words."""
        return getattr(self.word_input, "vocabulary_size", self.vocabulary_size)

    def for_inference(self, extra_words=None):
        """The model with all word vectors computed: itself, or for a `CharCNN` one that looks them up, of the same body
        and output.

        Args:
            extra_words: words outside the vocabulary, which get the ids behind it as tokens; for `CharCNN` only.

        Raises:
            ValueError: on extra words, be it an empty list, for an input that knows words by their ids alone.
        """
        if hasattr(self.word_input, "for_inference"):
            return LanguageModel(self.word_input.for_inference(extra_words), self.body, self.word_output)
        if extra_words is not None:
            raise ValueError(
                "Only a model of `CharCNN` input can read words outside its vocabulary: leave them out, or map them to "
                f"`<unk>`. Received: {list(extra_words)[:3]}, word_input={self.word_input.__class__.__name__}."
            )
        return self

    @property
    def metrics(self):
        return [self.loss_tracker, self.perplexity_tracker, self.skipped_tracker]

    def compile(self, optimizer="rmsprop", micro_batches=1, **kwargs):
        """As `keras.Model.compile`, without a loss and metrics: the model has its own.

        Args:
            optimizer: any Keras optimizer; its `global_clipnorm` sees the gradient of the whole update.
            micro_batches: into how many parts each batch of `fit` is cut. Must divide the batch.
            **kwargs: as in Keras (`jit_compile`, `run_eagerly`, `steps_per_execution`).
        """
        for name in ("loss", "metrics", "weighted_metrics"):
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"A LanguageModel has its own loss and metrics: leave out `{name}`. Received: {kwargs[name]}."
                )
        self.micro_batches = micro_batches
        super().compile(optimizer=self._with_loss_scale(optimizer), **kwargs)

    def _with_loss_scale(self, optimizer):
        """Keras wraps the optimizer by the policy of the model, but it is its layers' policy that decides."""
        optimizer = keras.optimizers.get(optimizer)
        scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if self.body.dtype_policy.name != "mixed_float16" or scales:
            return optimizer
        return keras.optimizers.LossScaleOptimizer(optimizer)

    def get_compile_config(self):
        config = super().get_compile_config()
        return config and {**config, "micro_batches": self.micro_batches}

    def compile_from_config(self, config):
        config = keras.saving.deserialize_keras_object(config)
        self.compile(**config)
        self.optimizer.build(self.trainable_variables)

    def fit(self, x=None, y=None, **kwargs):
        return super().fit(self._checked(x, "tokens"), self._checked(y, "targets"), **kwargs)

    def evaluate(self, x=None, y=None, **kwargs):
        return super().evaluate(self._checked(x, "tokens"), self._checked(y, "targets"), **kwargs)

    def _checked(self, ids, name):
        return check_ids(ids, self._size(name), name) if isinstance(ids, (np.ndarray, list)) else ids

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Under TensorFlow's strategies Keras would build by the mean of a batch; here only the optimizer is to do."""
        if self.compiled and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)

    def train_step(self, *arguments):
        return self._step(self._train, arguments)

    def test_step(self, *arguments):
        return self._step(self._test, arguments)

    def _step(self, function, arguments):
        """Runs `function(data)`; under JAX as a pure function of the state that `fit` carries."""
        if keras.config.backend() != "jax":
            return averaged_by_keras(function(*arguments))
        groups = [self.trainable_variables, self.non_trainable_variables, self.metrics_variables]
        if function == self._train:
            groups.insert(2, self.optimizer.variables)

        def pure(state, data):
            mapping = [pair for group, values in zip(groups, state) for pair in zip(group, values)]
            with keras.StatelessScope(state_mapping=mapping) as scope:
                logs = function(data)
            return logs, tuple([scope.get_current_value(variable) for variable in group] for group in groups)

        return on_each_replica(pure, *arguments)

    def _train(self, data):
        if not self.optimizer.built:  # before its loss scale is asked for
            self.optimizer.build(self.trainable_variables)
        tokens, targets, weights, count = _unpack(data)
        scale = self._loss_scale()
        shares = weights * scale / ops.maximum(count, 1e-9)  # of the mean over the whole update
        parts = [_parts(array, self.micro_batches) for array in (tokens, targets, shares)]
        loss, gradients = 0.0, None
        for micro_batch in zip(*parts):
            part, new = value_and_gradients(self._loss, micro_batch, self)
            loss = loss + part
            gradients = new if gradients is None else [old + one for old, one in zip(gradients, new)]
        loss, *gradients = sum_over_replicas([loss, *gradients])
        norm = global_norm(gradients) / scale
        finite = ops.logical_and(ops.isfinite(loss), ops.isfinite(norm))
        self.skipped_tracker.update_state(1.0 - ops.cast(finite, "float32"))
        skipped = self.skipped_tracker.result()
        logs = {**self._track_finite(loss / scale, count), "gradient_norm": norm, "skipped": skipped}
        apply_gradients(gradients, self, finite)  # changes the scale
        return logs

    def _test(self, data):
        tokens, targets, weights, count = _unpack(data)
        nll = self.word_output.nll(self(tokens, training=False), targets)
        total = sum_over_replicas(ops.sum(nll * weights))
        return self._track(total / ops.maximum(count, 1e-9), count)

    def _loss(self, tokens, targets, shares):
        hidden = self(tokens, training=True)
        return self.word_output.total_nll(hidden, targets, shares, training=True)

    def _loss_scale(self):
        """What float16 training multiplies the loss by and the optimizer divides the gradients by."""
        scale = getattr(self.optimizer, "dynamic_scale", None)
        return 1.0 if scale is None else ops.convert_to_tensor(scale)

    def _track(self, loss, count):
        for metric in (self.loss_tracker, self.perplexity_tracker):
            metric.update_state(loss, sample_weight=count)
        return {metric.name: metric.result() for metric in (self.loss_tracker, self.perplexity_tracker)}

    def _track_finite(self, loss, count):
        """As `_track`, but a loss that is not finite is kept out of the means, and logged in their place."""
        finite = ops.isfinite(loss)
        logs = self._track(ops.where(finite, loss, 0.0), ops.where(finite, count, 0.0))
        return {name: ops.where(finite, mean, loss) for name, mean in logs.items()}

    def nll(self, tokens, targets):
        """−log p(target | tokens so far) in nats: ids (batch, length) twice to a NumPy array (batch, length)."""
        tokens, targets = self._ids(tokens, "tokens"), self._ids(targets, "targets")
        function = self._compiled("nll", lambda x, y: self.word_output.nll(self(x, training=False), y))
        return ops.convert_to_numpy(function(tokens, targets))

    def log_probs(self, tokens):
        """The log-probability of every next word: (batch, length) to a NumPy array (batch, length, vocabulary)."""
        tokens = self._ids(tokens, "tokens")
        function = self._compiled("log_probs", lambda x: self.word_output.log_probs(self(x, training=False)))
        return ops.convert_to_numpy(function(tokens))

    def score(self, tokens, targets, segment=512):
        """What every target is worth: ids (batch, length) twice to NumPy arrays of log p(target | tokens so far) in
        nats and of its rank among all words, 1 for the most probable, (batch, length) each.

        Args:
            tokens: ids that go in.
            targets: ids that come out.
            segment: tokens that are worked on at a time, behind the cache of those before them.
        """
        tokens, targets = self._ids(tokens, "tokens"), self._ids(targets, "targets")

        def step(tokens, targets, state):
            hidden, state = self.body.step(self.word_input(tokens), state)
            return -self.word_output.nll(hidden, targets), self.word_output.rank(hidden, targets), state

        step, state, parts = self._compiled("score", step, [2]), self.body.initial_state(*tokens.shape), []
        for start in range(0, tokens.shape[1], segment):
            *part, state = step(tokens[:, start : start + segment], targets[:, start : start + segment], state)
            parts.append([ops.convert_to_numpy(one) for one in part])
        return tuple(np.concatenate(one, axis=1) for one in zip(*parts))

    def generate(self, prompt, length, temperature=1.0, top_k=None, seed=None, sampler=None):
        """Continues `prompt`, one word at a time, each drawn exactly.

        Args:
            prompt: ids (batch, prompt length), at least one per row; or a list of rows of any lengths.
            length: number of words to add to each.
            temperature: divides the log-probabilities; 0 takes the most probable word.
            top_k: draw among the k most probable words only, optional.
            seed: int; one seed gives the same words on every backend, up to rounding.
            sampler: a `keras_hub.samplers.Sampler` to use instead, which has its own temperature and seed and sees the
                probabilities of all words: beam search, top-p, contrastive search. All prompts must be of one length.

        Returns: a NumPy array (batch, length) int32 of the new ids.
        """
        prompts = self._prompts(prompt)
        if sampler is not None:
            prompt = self._ids(prompt, "prompt")
            step = self._compiled("next", self._next)
            return generation.by_sampler(sampler, step, self.body.initial_state, prompt, length)
        words = np.stack(list(self.stream(prompts, length, temperature, top_k, seed)), axis=1)
        starts = np.array([len(one) for one in prompts]) - min(map(len, prompts))
        return np.take_along_axis(words, starts[:, None] + np.arange(length), axis=1)

    def stream(self, prompt, length, temperature=1.0, top_k=None, seed=None):
        """As `generate`, but yields the words as they come: one array (batch,) per step.

        The first stands behind the shortest prompt; rows of longer prompts repeat what these hold until they end.
        """
        prompts = self._prompts(prompt)

        def step(tokens, state, uniform):
            hidden, state = self.body.step(self.word_input(tokens), state)
            return self.word_output.sample_with(hidden[:, -1], uniform, temperature, top_k), state

        step = self._compiled(("step", temperature, top_k), step, [1])
        state = self.body.initial_state(len(prompts), max(map(len, prompts)) + length)
        return generation.stream(step, state, prompts, length, seed)

    def _next(self, tokens, state):
        """The log-probabilities behind the last of some tokens, the hidden vectors of all, and the state."""
        hidden, state = self.body.step(self.word_input(tokens), state)
        return self.word_output.log_probs(hidden[:, -1]), hidden, state

    def _prompts(self, prompt):
        """A list of checked rows of ids."""
        if isinstance(prompt, list) and len({np.shape(row) for row in prompt}) > 1:
            return [self._ids([row], "prompt")[0] for row in prompt]
        return list(self._ids(prompt, "prompt"))

    def _size(self, name):
        return self.vocabulary_size if name == "targets" else self.words_in

    def _ids(self, ids, name):
        ids = check_ids(ids, self._size(name), name)
        if ids.ndim != 2 or not ids.size:
            raise ValueError(f"`{name}` must have shape (batch, length), neither of them 0. Received: {ids.shape}.")
        return ids

    def _compiled(self, key, function, donate_argnums=()):
        if key not in self._compiled_functions:
            self._compiled_functions[key] = compiled(function, self.variables, donate_argnums)
        return self._compiled_functions[key]

    def save_own_variables(self, store):
        """Keras leaves out the state of dropout's random numbers; with it a loaded model trains on bit for bit."""
        for number, seed in enumerate(self._seeds()):
            store[str(number)] = ops.convert_to_numpy(seed)

    def load_own_variables(self, store):
        for number, seed in enumerate(self._seeds()):
            seed.assign(store[str(number)])

    def _seeds(self):
        weights = {id(variable) for variable in self.non_trainable_weights}
        return [variable for variable in self.non_trainable_variables if id(variable) not in weights]

    def get_config(self):
        parts = {"word_input": self.word_input, "body": self.body, "word_output": self.word_output}
        return {"name": self.name, **{key: keras.saving.serialize_keras_object(part) for key, part in parts.items()}}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        parts = {}
        for key in ("word_input", "body", "word_output"):
            part = config[key]
            if (part["config"].get("tied_to") or {}).get("config") == config["word_input"]["config"]:
                part = {**part, "config": {**part["config"], "tied_to": parts["word_input"]}}
            parts[key] = keras.saving.deserialize_keras_object(part, custom_objects=custom_objects)
        return cls(**{**config, **parts})


def _of_all_replicas(metric):
    """The class of a metric to which every replica gives the same, what is true of all: one of them is to be read.

    By itself TensorFlow adds replicas' metrics up.
    """

    class OfAllReplicas(metric):
        def add_variable(self, shape, initializer, dtype=None, aggregation=None, name=None):
            return super().add_variable(shape, initializer, dtype, "only_first_replica", name)

    return OfAllReplicas


def _unpack(data):
    """(tokens, targets, weights, number of targets in all replicas) of a batch; without weights each target counts 1.

    Weights are one per target or, as elsewhere in Keras, one per sequence.
    """
    tokens, targets, given = keras.utils.unpack_x_y_sample_weight(data)
    weights = ops.ones(ops.shape(targets))
    if given is not None:
        given = ops.cast(given, "float32")
        weights = weights * (given[:, None] if len(given.shape) == 1 else given)
    return tokens, targets, weights, sum_over_replicas(ops.sum(weights))


def _parts(array, count):
    """`array` in `count` equal parts along its first axis."""
    rows = ops.shape(array)[0]
    message = f"`micro_batches` must divide the batch. Received: micro_batches={count}, batch of"
    if not isinstance(rows, int):  # in a graph of TensorFlow, which finds out when it runs
        import tensorflow as tf

        tf.debugging.assert_equal(rows % count, 0, f"{message} another size.")
    elif rows % count:
        raise ValueError(f"{message} {rows}.")
    size = rows // count
    return [array[part * size : (part + 1) * size] for part in range(count)]
