"""What exported modules use of the package transformers, which is not installed: classes of the same behavior."""

import importlib
import sys
import types
from typing import NamedTuple

import numpy as np

from keras_adaptive.checkpoints.safetensors import load_safetensors
from keras_adaptive.files import read_text


def load_exported(folder):
    """Returns the PyTorch model in a folder that `export_huggingface` wrote, with all of its weights."""
    import json

    import torch

    config = json.loads(read_text(folder / "config.json"))
    name, class_name = config["auto_map"]["AutoModelForCausalLM"].split(".")
    config_class = config["auto_map"]["AutoConfig"].split(".")[1]
    package = types.ModuleType("exported")
    package.__path__ = [str(folder)]
    before = dict(sys.modules)
    sys.modules |= {"exported": package, **_stand_ins(torch)}
    try:
        module = importlib.import_module(f"exported.{name}")
        sys.modules["exported"] = module
        model = getattr(module, class_name)(getattr(module, config_class)(**config))
        weights = load_safetensors(folder / "model.safetensors")
        model.load_state_dict({key: torch.from_numpy(np.array(array)) for key, array in weights.items()}, strict=True)
    finally:
        for key in [key for key in sys.modules if key not in before and key.startswith(("exported", "transformers"))]:
            del sys.modules[key]
    return model.eval()


def _stand_ins(torch):
    class PretrainedConfig:
        def __init__(self, **kwargs):
            self.__dict__ |= kwargs

    class PreTrainedModel(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config

        def post_init(self):
            pass

    class DynamicCache:
        def __init__(self):
            self.layers = []

        def update(self, keys, values, layer):
            if layer == len(self.layers):
                self.layers.append(types.SimpleNamespace(keys=keys[:, :, :0], values=values[:, :, :0]))
            kept = self.layers[layer]
            kept.keys, kept.values = torch.cat([kept.keys, keys], 2), torch.cat([kept.values, values], 2)
            return kept.keys, kept.values

        def get_seq_length(self):
            return self.layers[0].keys.shape[2] if self.layers else 0

    class CausalLMOutputWithPast(NamedTuple):
        loss: object
        logits: object
        cache: object

    package, outputs = types.ModuleType("transformers"), types.ModuleType("transformers.modeling_outputs")
    for kind in (PretrainedConfig, PreTrainedModel, DynamicCache, type("GenerationMixin", (), {})):
        setattr(package, kind.__name__, kind)
    outputs.CausalLMOutputWithPast = CausalLMOutputWithPast
    return {"transformers": package, "transformers.modeling_outputs": outputs}
