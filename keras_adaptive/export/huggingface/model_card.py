"""The README.md of an exported model."""

from keras_adaptive.data import TextCodec
from keras_adaptive.models import LanguageModel

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [keras, adaptive-softmax]
---
# {name}

A language model, trained by keras_adaptive and exported for PyTorch.

| | |
|---|---|
{rows}

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER", trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained("FOLDER", trust_remote_code=True)
log_probs = model(**tokenizer("It was the best", return_tensors="pt")).logits
loss = model(**(ids := tokenizer("It was the best\\n", return_tensors="pt")), labels=ids["input_ids"]).loss
```

- The logits are log-probabilities. With labels the model returns the loss and no logits.
- The tokenizer begins a text with `</s>`, so that the first word has a probability. A line break is `</s>`, which ends
  a line. Words outside the vocabulary are `<unk>`, which `generate` does not draw.
"""


def model_card(model: LanguageModel, codec: TextCodec, facts: dict[str, str]) -> str:
    """Returns the text of a model card: the parts of a model, its size, its tokens, and further facts."""
    parts = (model.word_input, model.body, model.word_output)
    known = {
        "parts": ", ".join(type(part).__name__ for part in parts),
        "parameters": f"{model.count_params():,}",
        "vocabulary": f"{len(codec.vocabulary):,} {codec.unit}s, tokenizer {codec.tokenizer!r}",
        "longest training rows": f"{model.trained_length:,} tokens" if model.trained_length else "unknown",
    }
    facts = dict(facts)
    name = facts.pop("name", "A language model")
    return CARD.format(name=name, rows="\n".join(f"| {row} | {value} |" for row, value in {**known, **facts}.items()))
