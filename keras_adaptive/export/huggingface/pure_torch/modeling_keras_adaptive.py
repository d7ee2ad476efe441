"""Word models of keras_adaptive in PyTorch alone, for `AutoModelForCausalLM` of transformers.

`keras-adaptive export --format=huggingface` copies this folder into that of a model. A model is an input (ids to
vectors), a body (vectors to hidden states) and an output (hidden states to log-probabilities of the next word). Its
logits are log-probabilities. With labels it returns the loss and no logits. There is no dropout.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .attention import Text, parameter
from .bodies import BODIES


class AdaptiveConfig(PretrainedConfig):
    """Configuration of a model: a dict for each of its three parts, which `keras-adaptive export` writes."""

    model_type = "keras_adaptive"

    def __init__(
        self,
        vocab_size: int = 8,
        word_input: dict | None = None,
        body: dict | None = None,
        word_output: dict | None = None,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.word_input, self.body, self.word_output = word_input, body, word_output
        super().__init__(**kwargs)


def capped(logits, cap):
    return logits if cap is None else cap * torch.tanh(logits / cap)


class BandedEmbedding(nn.Module):
    """Input: a table for each band of the vocabulary, with a projection or without."""

    def __init__(self, boundaries, dimensions, output_dim, projects):
        super().__init__()
        self.boundaries = boundaries
        sizes = [high - low for low, high in zip(boundaries, boundaries[1:])]
        self.tables = nn.ParameterList([parameter(size, dim) for size, dim in zip(sizes, dimensions)])
        self.projections = nn.ParameterList([parameter(dim, output_dim) for dim in dimensions] if projects else [])
        self.output_dim = output_dim

    def forward(self, ids):
        vectors = self.tables[0].new_zeros((*ids.shape, self.output_dim))
        for band, (low, high) in enumerate(zip(self.boundaries, self.boundaries[1:])):
            inside = (ids >= low) & (ids < high)
            rows = F.embedding(ids[inside] - low, self.tables[band])
            vectors[inside] = rows @ self.projections[band] if len(self.projections) else rows
        return vectors


class BandedSoftmax(nn.Module):
    """Output: adaptive or plain softmax, over its own tables or over the tables of the input.

    `tables` and `projections` hold a shape per band, or `None` for a band that takes them from the input (`tied`) or
    has none. A single table of several bands is cut into them.
    """

    def __init__(self, boundaries, *, tables, projections, tied, class_dim, use_bias, projects_head, soft_cap):
        super().__init__()
        self.boundaries, self.tied, self.soft_cap, self.projects_head = boundaries, tied, soft_cap, projects_head
        self.tails = len(boundaries) - 2
        self.tables = nn.ParameterList([parameter(*shape) for shape in tables])
        self.projections = nn.ParameterDict(
            {str(band): parameter(*shape) for band, shape in enumerate(projections) if shape is not None}
        )
        self.class_table = parameter(self.tails, class_dim) if self.tails else None
        self.bias = parameter(boundaries[-1]) if use_bias else None
        self.class_bias = parameter(self.tails) if use_bias and self.tails else None

    def log_probs(self, hidden, word_input):
        """Returns the log-probabilities of all words (…, words), float32, of hidden states (…, hidden_dim)."""
        head = F.log_softmax(self._head(hidden, word_input), -1)
        words, classes = head[..., : self.boundaries[1]], head[..., self.boundaries[1] :]
        tails = [
            F.log_softmax(self._logits(hidden, tail + 1, word_input), -1) + classes[..., tail, None]
            for tail in range(self.tails)
        ]
        return torch.cat([words, *tails], -1)

    def nll(self, hidden, targets, word_input):
        """Returns −log p(target), (rows,) float32, of hidden states (rows, hidden_dim). Rows compute their own tail."""
        tail = (
            sum((targets >= low).long() for low in self.boundaries[1:-1]) if self.tails else torch.zeros_like(targets)
        )
        places = torch.where(tail > 0, self.boundaries[1] + tail - 1, targets)
        nll = F.cross_entropy(self._head(hidden, word_input), places, reduction="none")
        for band in range(1, self.tails + 1):
            rows = torch.nonzero(tail == band)[:, 0]
            logits = self._logits(hidden[rows], band, word_input)
            of_band = F.cross_entropy(logits, targets[rows] - self.boundaries[band], reduction="none")
            nll = nll.index_add(0, rows, of_band)
        return nll

    def _projected(self, hidden, band, word_input):
        if str(band) in self.projections:
            return hidden @ self.projections[str(band)]
        return hidden @ word_input.projections[band].T if self.tied[band] else hidden

    def _logits(self, hidden, band, word_input):
        low, high = self.boundaries[band : band + 2]
        tables = self.tables if len(self.tables) else word_input.tables
        table = tables[band] if len(tables) == len(self.boundaries) - 1 else tables[0][low:high]
        logits = (self._projected(hidden, band, word_input) @ table.T).float()
        return capped(logits if self.bias is None else logits + self.bias[low:high].float(), self.soft_cap)

    def _head(self, hidden, word_input):
        """Returns the logits of the words of the head, followed by the logits of the tails."""
        logits = self._logits(hidden, 0, word_input)
        if not self.tails:
            return logits
        hidden = self._projected(hidden, 0, word_input) if self.projects_head else hidden
        classes = (hidden @ self.class_table.T).float()
        classes = classes if self.class_bias is None else classes + self.class_bias.float()
        return torch.cat([logits, capped(classes, self.soft_cap)], -1)


class AdaptiveForCausalLM(PreTrainedModel, GenerationMixin):
    """Language model with an adaptive or a plain softmax."""

    config_class = AdaptiveConfig
    base_model_prefix = "model"

    def __init__(self, config: AdaptiveConfig) -> None:
        super().__init__(config)
        self.word_input = BandedEmbedding(**config.word_input)
        body = dict(config.body)
        self.body = BODIES[body.pop("kind")](**body)
        self.word_output = BandedSoftmax(**config.word_output)
        self.post_init()

    def get_input_embeddings(self):
        return self.word_input

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        cache: Any = None,
        past_key_values: Any = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: Any = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Returns the log-probabilities of the word after each token, or the loss and no logits if there are labels.

        Args:
            input_ids: Ids (batch, steps) of the tokens that follow `cache`. A text begins with `</s>`.
            attention_mask: (batch, all tokens so far), 0 for padding, which may be at either end. Optional.
            cache, past_key_values: A `DynamicCache` under the name of newer or of older versions. Optional.
            labels: Ids (batch, steps), usually `input_ids`; the loss compares each token with the label of the next
                one. The label −100 does not count, nor does the first token after padding. Optional.
            use_cache: Whether to return the cache; a new one if none is given. False with labels.
            logits_to_keep: Number of tokens at the end whose logits are returned; 0 for all.
            num_items_in_batch: Divisor of the sum of the losses, by default the number of labels that count.
            return_dict: False for a tuple.
        """
        cache = past_key_values if cache is None else cache
        if cache is None and use_cache and labels is None:
            cache = DynamicCache()
        (batch, steps), before = input_ids.shape, 0 if cache is None else cache.get_seq_length()
        known = torch.ones((batch, before + steps), dtype=torch.bool, device=input_ids.device)
        if attention_mask is not None:
            known = attention_mask.bool()
        text = Text(known, known.long().cumsum(1) - 1, steps, cache)
        hidden = self.body(self.word_input(input_ids), text)
        loss = logits = None
        if labels is None:
            hidden = hidden[:, -logits_to_keep:] if logits_to_keep else hidden
            logits = self.word_output.log_probs(hidden, self.word_input)
        else:
            hidden, targets = hidden[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
            counts = (targets >= 0) & known[:, -steps:-1].flatten()  # padding predicts nothing
            nll = self.word_output.nll(hidden[counts], targets[counts], self.word_input).sum()
            loss = nll / (counts.sum() if num_items_in_batch is None else num_items_in_batch)
        output = CausalLMOutputWithPast(loss, logits, cache)
        return output.to_tuple() if return_dict is False else output
