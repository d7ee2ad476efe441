"""Bodies: the layers from word vectors to hidden states. There is no dropout."""

import torch
from torch import nn
from torch.nn import functional as F

from .attention import MIXERS, parameter, sinusoids

ACTIVATIONS = {
    "relu": F.relu,
    "relu_squared": lambda x: F.relu(x).square(),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


def norm(dim):
    return nn.LayerNorm(dim, eps=1e-5)


class Block(nn.Module):
    """Mixing layer, or none, and feed-forward layer, each with a residual connection and a LayerNorm."""

    def __init__(self, dim, ffn_dim, activation, normalize_first, mixer=None):
        super().__init__()
        self.activation, self.normalize_first = ACTIVATIONS[activation], normalize_first
        self.mixer = None
        if mixer is not None:
            kind, options = mixer["kind"], {name: value for name, value in mixer.items() if name != "kind"}
            self.mixer, self.mixer_norm = MIXERS[kind](dim=dim, **options), norm(dim)
        self.ffn_norm, self.ffn_in, self.ffn_out = norm(dim), nn.Linear(dim, ffn_dim), nn.Linear(ffn_dim, dim)

    def forward(self, x, text):
        if self.mixer is not None:
            x = self._added(x, self.mixer_norm, lambda y: self.mixer(y, text))
        return self._added(x, self.ffn_norm, lambda y: self.ffn_out(self.activation(self.ffn_in(y))))

    def _added(self, x, norm, function):
        return x + function(norm(x)) if self.normalize_first else norm(x + function(x))


class Concatenation(nn.Module):
    """Feed-forward layer over the nearest tokens and weighted averages of farther ones (NPLM, Transformer-N)."""

    def __init__(self, layer, dim, *, num_local, num_global, reach, hidden_dim, normalize):
        super().__init__()
        self.layer, self.num_local, self.reach = layer, num_local, reach
        self.hidden = nn.Linear((num_local + num_global) * dim, hidden_dim or dim)
        self.out = nn.Linear(hidden_dim, dim) if hidden_dim else None
        self.filters = parameter(num_global, reach) if num_global else None
        self.norm = norm(dim) if normalize else None

    def forward(self, x, text):
        return self.with_global_sum(x, text)[0]

    def with_global_sum(self, x, text):
        """Returns the output and the sum of the averages, 0 if there are none."""
        x = x * text.new
        seen = text.keep(self.layer, x[:, None], x[:, None, :, :0])[0][:, 0]
        seen = F.pad(seen, (0, 0, self.reach - 1, 0))[:, -(text.steps + self.reach - 1) :]
        windows = seen.unfold(1, self.reach, 1).flip(-1).transpose(2, 3)  # (batch, steps, distance, dim)
        blocks, global_sum = windows[:, :, : self.num_local], 0.0
        if self.filters is not None:
            averages = self.filters @ windows
            blocks, global_sum = torch.cat([blocks, averages], 2), averages.sum(2)
        branch = F.relu(self.hidden(blocks.flatten(2)))
        y = blocks.sum(2) + (branch if self.out is None else self.out(branch))
        return y if self.norm is None else self.norm(y), global_sum


def layers_of(configs, dim):
    """Returns the layers of a body: blocks, or concatenations where the config has a number of local tokens."""
    classes = (Concatenation if "num_local" in config else Block for config in configs)
    return nn.ModuleList([make(dim=dim, **config) for make, config in zip(classes, configs)])


class Transformer(nn.Module):
    """Body of blocks, with positions that are sinusoidal, learned or none."""

    def __init__(self, input_dim, dim, output_dim, *, blocks, scale, positions, input_norm, final_norm):
        super().__init__()
        self.scale, self.dim, self.first = scale, dim, (positions or {}).get("first")
        self.projection = None if input_dim == dim else nn.Linear(input_dim, dim, bias=False)
        self.positions = parameter(positions["number"], dim) if "number" in (positions or {}) else None
        self.input_norm, self.final_norm = (norm(dim) if has else None for has in (input_norm, final_norm))
        self.blocks = layers_of(blocks, dim)
        self.output_projection = None if output_dim == dim else nn.Linear(dim, output_dim, bias=False)

    def forward(self, x, text):
        x = x * self.scale
        x = x if self.projection is None else self.projection(x)
        if self.first is not None:
            places = text.places[:, -text.steps :].clamp(min=0) + self.first
            if self.positions is None:
                x = x + sinusoids(places, self.dim, self.dim // 2 - 1).to(x.dtype)
            elif int(places.max()) >= len(self.positions):
                raise ValueError(
                    f"The model has learned {len(self.positions) - self.first} positions: cut the text into shorter "
                    f"sequences. Received: {int(places.max()) - self.first + 1} tokens."
                )
            else:
                x = x + self.positions[places]
        x = x if self.input_norm is None else self.input_norm(x)
        for block in self.blocks:
            x = block(x, text)
        x = x if self.final_norm is None else self.final_norm(x)
        return x if self.output_projection is None else self.output_projection(x)


class NPLM(nn.Module):
    """Body of a concatenation and feed-forward layers, each of which adds the averages of the concatenation."""

    def __init__(self, input_dim, blocks, scale):
        super().__init__()
        self.scale, self.blocks = scale, layers_of(blocks, input_dim)

    def forward(self, x, text):
        first, *others = self.blocks
        x, global_sum = first.with_global_sum(x * self.scale, text)
        for block in others:
            x = block(x, text) + global_sum
        return x


class LSTMLayer(nn.Module):
    """LSTM layer, whose output may be projected. It keeps its state after every token."""

    def __init__(self, layer, input_dim, units, output_dim, projects):
        super().__init__()
        self.layer, self.units, self.output_dim = layer, units, output_dim
        self.kernel, self.recurrent = nn.Linear(input_dim, 4 * units), nn.Linear(output_dim, 4 * units, bias=False)
        self.projection = nn.Linear(units, output_dim, bias=False) if projects else None

    def forward(self, x, text):
        zeros = (x.new_zeros(len(x), size) for size in (self.output_dim, self.units))
        (h, c), states = text.last(self.layer, *zeros), []
        for sums, known in zip(self.kernel(x).unbind(1), text.new.unbind(1)):
            i, f, g, o = (sums + self.recurrent(h)).chunk(4, -1)
            cells = f.sigmoid() * c + i.sigmoid() * g.tanh()
            output = o.sigmoid() * cells.tanh()
            output = output if self.projection is None else self.projection(output)
            h, c = torch.where(known, output, h), torch.where(known, cells, c)
            states.append((h, c))
        outputs, cells = (torch.stack(parts, 1) for parts in zip(*states))
        text.keep(self.layer, outputs[:, None], cells[:, None])
        return outputs


class QRNNLayer(nn.Module):
    """QRNN layer, a linear layer over one or two tokens and a pooling. It keeps inputs and cells of every token."""

    def __init__(self, layer, input_dim, units, window, rate):
        super().__init__()
        self.layer, self.units, self.window, self.rate = layer, units, window, rate
        self.kernel = nn.Linear(window * input_dim, 3 * units)

    def forward(self, x, text):
        x = x * text.new
        before, c = text.last(self.layer, x.new_zeros(len(x), x.shape[-1]), x.new_zeros(len(x), self.units))
        shifted = torch.cat([before[:, None], x[:, :-1]], 1)
        z, f, o = self.kernel(torch.cat([x, shifted][: self.window], -1)).chunk(3, -1)
        values, shares, cells = z.tanh(), self.rate * f.sigmoid() * text.new, []
        for value, share in zip(values.unbind(1), shares.unbind(1)):
            c = share * value + (1 - share) * c
            cells.append(c)
        cells = torch.stack(cells, 1)
        text.keep(self.layer, x[:, None], cells[:, None])
        return o.sigmoid() * cells


class Recurrent(nn.Module):
    """Body of recurrent layers."""

    def __init__(self, cell, layers):
        super().__init__()
        make = {"lstm": LSTMLayer, "qrnn": QRNNLayer}[cell]
        self.layers = nn.ModuleList([make(number, **config) for number, config in enumerate(layers)])

    def forward(self, x, text):
        for layer in self.layers:
            x = layer(x, text)
        return x


BODIES = {"transformer": Transformer, "nplm": NPLM, "recurrent": Recurrent}
