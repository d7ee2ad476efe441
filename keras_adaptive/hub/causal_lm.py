import os
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_adaptive.data import TextCodec
from keras_adaptive.hub.backbone import AdaptiveBackbone
from keras_adaptive.hub.preprocessor import AdaptiveCausalLMPreprocessor
from keras_adaptive.hub.presets import CLASSES, from_safe_preset
from keras_adaptive.hub.tokenizer import AdaptiveTokenizer
from keras_adaptive.models import LanguageModel, decoding
from keras_adaptive.models.delegated_training import DelegatedTraining
from keras_adaptive.models.reading import hidden_in_windows, reading_of
from keras_adaptive.models.training_step import PARTS
from keras_adaptive.text.loading import folder_of, read_model
from keras_adaptive.typing import Tensor

LENGTH = 1024  # KerasHub's default


@keras.saving.register_keras_serializable(package="keras_adaptive")
class AdaptiveCausalLM(DelegatedTraining, keras_hub.models.CausalLM):
    """KerasHub task around a `LanguageModel`: strings in, strings out.

    The task trains as the language model does. `fit` and `evaluate` compute the loss from hidden states and targets,
    never the logits of a whole batch. They log `loss`, `perplexity`, `gradient_norm` and `skipped`. Without a
    preprocessor they take `({"token_ids", "padding_mask"}, targets, weights)`.

    Like all KerasHub tasks, a call and `predict` return logits (batch, length, vocabulary); they are log-probabilities.
    `generate` draws by a sampler of KerasHub. It reads the prompt at once and keeps the state of any body.

    Args:
        backbone: An `AdaptiveBackbone`.
        preprocessor: An `AdaptiveCausalLMPreprocessor`, `None` to take and return ids.
        **kwargs: As in `keras_hub.models.CausalLM`.

    Example:

    ```python
    causal_lm = AdaptiveCausalLM.from_run("runs/books")
    causal_lm.compile(keras.optimizers.Adam(1e-3), sampler="top_p")
    causal_lm.fit(["It was the best of times", "it was the worst of times"], batch_size=2)
    causal_lm.generate("It was", max_length=20)
    causal_lm.save_to_preset("presets/books")
    ```
    """

    backbone_cls = AdaptiveBackbone
    preprocessor_cls = AdaptiveCausalLMPreprocessor
    from_preset = from_safe_preset(keras_hub.models.CausalLM, *CLASSES)

    def __init__(
        self, backbone: AdaptiveBackbone, preprocessor: AdaptiveCausalLMPreprocessor | None = None, **kwargs: Any
    ) -> None:
        for name, part, kind in (
            ("backbone", backbone, AdaptiveBackbone),
            ("preprocessor", preprocessor, keras_hub.models.CausalLMPreprocessor | None),
        ):
            if not isinstance(part, kind):
                raise ValueError(f"`{name}` must be a part of this package. Received: a {type(part).__name__}.")
        self.backbone = backbone
        self.preprocessor = preprocessor
        logits = backbone.language_model.word_output(backbone(backbone.input))
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)

    @classmethod
    def from_run(
        cls, folder: str | os.PathLike, model: str = "best", sequence_length: int | None = None
    ) -> "AdaptiveCausalLM":
        """Creates a task from a run folder or a converted checkpoint.

        Args:
            folder: Folder of the run.
            model: Which of the run's models: "best" or "last".
            sequence_length: Number of tokens of a row. By default the window in which the model reads a text, at most
                1,024.

        Raises:
            ValueError: If the folder holds no such model, or a file is damaged or belongs to another run.
        """
        folder = folder_of(folder)
        codec = TextCodec.load(folder)
        language_model = read_model(folder, model, len(codec.vocabulary))
        default = min(LENGTH, reading_of(language_model).window or LENGTH)
        length = default if sequence_length is None else sequence_length
        return cls(AdaptiveBackbone(language_model), AdaptiveCausalLMPreprocessor(AdaptiveTokenizer(codec), length))

    @property
    def language_model(self) -> LanguageModel:
        """The `LanguageModel` of the backbone."""
        return self.backbone.language_model

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        weighted_metrics: Any = "auto",
        sampler: Any = "top_k",
        micro_batches: int = 1,
        clip_parts: tuple[str, ...] = PARTS,
        **kwargs: Any,
    ) -> None:
        """Configures training as `LanguageModel.compile` does, and generation as `keras_hub.models.CausalLM` does.

        Args:
            optimizer: Any Keras optimizer; "auto" is Adam with a learning rate of 2e-5, as in KerasHub.
            loss: "auto" or `None`: the task has its own loss.
            weighted_metrics: "auto" or `None`: the task has its own metrics.
            sampler: Name of a sampler of KerasHub, or a `keras_hub.samplers.Sampler`.
            micro_batches: Number of equal parts in which a batch is computed, to save memory.
            clip_parts: Parts whose gradients the optimizer's `global_clipnorm` bounds: some of `word_input`, `body`
                and `word_output`.
            **kwargs: As in `keras.Model.compile`: `jit_compile`, `run_eagerly`, `steps_per_execution`.
        """
        optimizer = keras.optimizers.Adam(2e-5) if optimizer == "auto" else optimizer
        own = {"loss": loss, "weighted_metrics": weighted_metrics}
        own = {name: None if value == "auto" else value for name, value in own.items()}
        self.language_model.compile(optimizer, micro_batches=micro_batches, clip_parts=clip_parts, **own, **kwargs)
        super().compile(self.language_model.optimizer, None, weighted_metrics=None, sampler=sampler, **kwargs)

    quantize = AdaptiveBackbone.quantize

    def get_compile_config(self) -> dict[str, Any]:
        config, model = super().get_compile_config(), self.language_model
        own = {"sampler": keras_hub.samplers.serialize(self.sampler)} if config else {}
        return config and {**config, **own, "micro_batches": model.micro_batches, "clip_parts": model.clip_parts}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    @property
    def trainer(self) -> LanguageModel:
        return self.language_model

    def fit(self, x: Any = None, y: Any = None, **kwargs: Any) -> keras.callbacks.History:
        return super().fit(x, y, **{"shuffle": False, **kwargs})  # KerasHub passes a data set, which cannot be shuffled

    def _batch_of_trainer(self, *arguments):
        """Replaces KerasHub's dict by the ids of the batch."""
        inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(arguments[-1])
        return *arguments[:-1], keras.utils.pack_x_y_sample_weight(inputs["token_ids"], targets, weights)

    def make_generate_function(self) -> Any:
        """Returns a function that reads the prompts of a batch, then runs the compiled `generate_step`."""
        if self.generate_function is None:
            jit_compile, self.jit_compile = self.jit_compile, False  # TensorFlow's XLA cannot update a cache in a loop
            continued = super().make_generate_function()
            self.jit_compile = jit_compile
            self.generate_function = lambda inputs, stop_token_ids=None: continued(self._read(inputs), stop_token_ids)
        return self.generate_function

    def _read(self, inputs: dict[str, Tensor]) -> dict[str, Any]:
        """Returns the inputs of `generate_step`, with the hidden states and the state after the shortest prompt."""
        tokens, inside = (ops.convert_to_numpy(inputs[name]) for name in ("token_ids", "padding_mask"))
        inside = inside.astype(bool)
        shortest, length = int(inside.sum(axis=1).min()), tokens.shape[1]
        if not shortest:
            raise ValueError("Every prompt must have a token. Received: a row whose `padding_mask` is 0 everywhere.")
        tokens = tokens.astype("int32")
        model = self.language_model
        reading = reading_of(model)
        prompts = tokens[:, :shortest]
        hidden, state = decoding.read_prompts(model.compiled_next(), model.body.initial_state, prompts, length, reading)
        numbers = {"token_ids": tokens, "padding_mask": inside, "index": np.int32(shortest)}
        return {**keras.tree.map_structure(ops.convert_to_tensor, numbers), "hidden": hidden, "state": state}

    def generate_step(self, inputs: dict[str, Any], stop_token_ids: list[int] | None = None) -> dict[str, Tensor]:
        """Continues prompts after their common part was read.

        Args:
            inputs: Dict of `token_ids` and `padding_mask` (batch, length), the prompts; `index`, the number of tokens
                of the shortest prompt; `hidden` and `state`, as `decoding.read_prompts` returns them.
            stop_token_ids: Ids that end a row. Optional.

        Returns:
            Dict of `token_ids` and `padding_mask` (batch, length): the mask is False after the end of a row.
        """
        given, model = inputs["padding_mask"], self.language_model
        length = inputs["token_ids"].shape[1]
        token_ids = self.sampler(
            decoding.next_word(model.next_log_probs, model.body.initial_state, length, reading_of(model)),
            inputs["token_ids"],
            cache=inputs["state"],
            index=inputs["index"],
            mask=given,
            stop_token_ids=stop_token_ids,
            hidden_states=inputs["hidden"],
            model=self,
        )
        if stop_token_ids is None:
            return {"token_ids": token_ids, "padding_mask": ops.ones_like(given)}
        ends = ops.any(token_ids[..., None] == ops.convert_to_tensor(list(stop_token_ids), "int32"), axis=-1)
        ends = ops.cast(ops.logical_and(ends, ops.logical_not(given)), "int32")
        return {"token_ids": token_ids, "padding_mask": ops.cumsum(ends, axis=-1) == ends}

    def export_to_transformers(self, path: str | os.PathLike) -> None:
        """Writes a folder for the package transformers, as `keras_adaptive.export.export_huggingface` does.

        Args:
            path: Folder to write, new or empty.

        Raises:
            ValueError: If the task has no preprocessor, whose tokenizer the folder needs, or the folder cannot hold a
                part of the model.
        """
        if self.preprocessor is None:
            raise ValueError("The export must hold a tokenizer: give the task a preprocessor. Received: None.")
        from keras_adaptive.export.huggingface import export_huggingface

        export_huggingface(self.language_model, self.preprocessor.tokenizer.codec, path)

    def score(
        self,
        token_ids: Tensor,
        padding_mask: Tensor | None = None,
        scoring_mode: str = "logits",
        layer_intercept_fn: Any = None,
        target_ids: Tensor | None = None,
    ) -> Tensor:
        """Scores token ids, as the tasks of KerasHub do, in the same windows as `TextModel`.

        Args:
            token_ids: Ids (batch, length).
            padding_mask: Ignored.
            scoring_mode: "logits" or "loss". The loss needs no logits.
            layer_intercept_fn: Function `(x, index) → x` of the word vectors (index −1) and of the hidden states
                (index 0), each (batch, length, dim). Optional.
            target_ids: Ids (batch, length), for the loss.

        Returns:
            The log-probabilities of all words (batch, length, vocabulary), or the negative log-likelihood of each
            target (batch, length), in nats.
        """
        if scoring_mode not in ("logits", "loss"):
            raise ValueError(f"`scoring_mode` must be 'logits' or 'loss'. Received: scoring_mode={scoring_mode!r}.")
        if scoring_mode == "loss" and target_ids is None:
            raise ValueError("`scoring_mode='loss'` needs `target_ids`, the word that follows each token.")
        model, intercept = self.language_model, layer_intercept_fn or (lambda x, index: x)
        vectors = intercept(model.word_input(ops.convert_to_tensor(token_ids)), -1)
        hidden = intercept(hidden_in_windows(model.body, vectors, reading_of(model)), 0)
        if scoring_mode == "logits":
            return model.word_output.log_probs(hidden)
        return model.word_output.nll(hidden, ops.convert_to_tensor(target_ids))
