"""AWD-LSTM, as a PyTorch user writes it without this package, for comparison.

The program uses layers of `torch.nn.LSTM` whose recurrent weights are dropped before every pass, locked dropout, AR and
TAR, and `torch.nn.AdaptiveLogSoftmaxWithLoss`, which shares no weights with the embedding. Adam and clipping are
PyTorch's. `scripts.benchmarks.step` times it.
"""

import itertools

import torch
from torch import nn
from torch.nn import functional


class LockedDropout(nn.Module):
    """Drops channels of a row, the same ones at every time step: (time, batch, dim) -> (time, batch, dim)."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training or self.rate == 0:
            return x
        mask = x.new_empty(1, *x.shape[1:]).bernoulli_(1 - self.rate)
        return x * mask.div_(1 - self.rate)


class WeightDropLSTM(nn.Module):
    """A layer of `torch.nn.LSTM` with DropConnect on its recurrent weights, drawn once per pass over a batch."""

    def __init__(self, input_dim, units, rate):
        super().__init__()
        self.rate = rate
        self.lstm = nn.LSTM(input_dim, units)
        self.recurrent = self.lstm.weight_hh_l0
        del self.lstm.weight_hh_l0  # a tensor takes the parameter's place

    def forward(self, x, state):
        self.lstm.weight_hh_l0 = functional.dropout(self.recurrent[:], self.rate, self.training)  # never a parameter
        return self.lstm(x, state)


class AWDLSTM(nn.Module):
    """Language model of LSTM layers, the last of which has the dimension of the word vectors.

    The `dims` are that of the word vectors, then the units of every layer; `dropout` has the rates of locked dropout of
    the word vectors, between layers, and of the hidden states; `penalties` the strengths of AR and TAR.
    """

    def __init__(self, vocabulary_size, cutoffs, dims, *, weight_drop, dropout, penalties):
        super().__init__()
        self.penalties = penalties
        self.embedding = nn.Embedding(vocabulary_size, dims[0])
        self.layers = nn.ModuleList(WeightDropLSTM(*pair, weight_drop) for pair in itertools.pairwise(dims))
        self.drop_input, self.drop_between, self.drop_output = (LockedDropout(rate) for rate in dropout)
        self.output = nn.AdaptiveLogSoftmaxWithLoss(dims[-1], vocabulary_size, list(cutoffs))
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, ids, targets, states=None):
        """Returns the mean loss of targets (time, batch), with the penalties in training, and the states, cut off."""
        x, new_states = self.embedding(ids), []
        for number, layer in enumerate(self.layers):
            x = self.drop_between(x) if number else self.drop_input(x)
            x, state = layer(x, states and states[number])
            new_states.append(tuple(tensor.detach() for tensor in state))
        dropped = self.drop_output(x)
        loss = self.output(dropped.flatten(0, 1), targets.flatten()).loss
        if self.training:
            activations, changes = self.penalties
            loss = loss + activations * dropped.square().mean() + changes * (x[1:] - x[:-1]).square().mean()
        return loss, new_states


class Trainer:
    """Trains a model, an update at a time, and carries its state along the streams."""

    def __init__(self, model, learning_rate, clip_norm):
        self.model = model.train()
        self.clip_norm = clip_norm
        self.optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
        self.states = None

    def update(self, ids, targets):
        """Takes one step on ids (time, batch); returns the loss."""
        self.optimizer.zero_grad()
        loss, self.states = self.model(ids, targets, self.states)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()
        return loss.item()
