import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("the peer is a program of PyTorch's own", allow_module_level=True)

import torch

from keras_adaptive.layers import AdaptiveSoftmax, LSTMDecoder, WordEmbedding
from keras_adaptive.models import LanguageModel
from scripts.benchmarks.peers.torch_awd_lstm import AWDLSTM, LockedDropout, Trainer, WeightDropLSTM

pytestmark = pytest.mark.once
WORDS, CUTOFFS, DIMS, PENALTIES = 40, (8, 16), (16, 6, 16), (2.0, 1.0)


def make_peer(rate=0.0):
    torch.manual_seed(0)
    return AWDLSTM(WORDS, CUTOFFS, DIMS, weight_drop=rate, dropout=(rate,) * 3, penalties=PENALTIES)


def our_model(peer):
    """Returns the same model in our layers, with the weights of the peer."""
    body = LSTMDecoder(2, DIMS[1], DIMS[2], penalties=PENALTIES)
    model = LanguageModel(WordEmbedding(WORDS, DIMS[0]), body, AdaptiveSoftmax(WORDS, CUTOFFS))
    model.word_input.tables[0].assign(peer.embedding.weight)
    for ours, its in zip(body.recurrent_layers, peer.layers, strict=True):
        ours.kernel.assign(its.lstm.weight_ih_l0.T)
        ours.recurrent_kernel.assign(its.recurrent.T)
        ours.bias.assign(its.lstm.bias_ih_l0 + its.lstm.bias_hh_l0)
    output = model.word_output
    output.tables[0].assign(peer.output.head.weight[: CUTOFFS[0]])
    output.class_table.assign(peer.output.head.weight[CUTOFFS[0] :])
    for table, projection, (down, up) in zip(output.tables[1:], output.projections[1:], peer.output.tail, strict=True):
        table.assign(up.weight)
        projection.assign(down.weight.T)
    return model


def test_without_dropout_it_trains_as_our_model_of_the_same_weights():
    """Loss, penalties, the carried state, clip and Adam; the bias of a layer of `nn.LSTM` is in two parts."""
    peer = make_peer()
    for layer in peer.layers:
        layer.lstm.bias_hh_l0.requires_grad_(False)
    model, trainer = our_model(peer), Trainer(peer, learning_rate=0.01, clip_norm=0.1)
    model.compile(keras.optimizers.Adam(0.01, epsilon=1e-8, global_clipnorm=0.1), stream_rows=3)
    text = np.random.default_rng(1).integers(0, WORDS, (3, 21))
    ours, its = [], []
    for start in (0, 5, 10, 15):
        tokens, targets = text[:, start : start + 5], text[:, start + 1 : start + 6]
        ours.append(model.train_on_batch((tokens, np.full(3, start == 0)), targets, return_dict=True)["loss"])
        its.append(trainer.update(*(torch.from_numpy(ids.T.copy()) for ids in (tokens, targets))))
    assert ours == pytest.approx(its, rel=1e-4)


def test_weights_are_dropped_in_training_only():
    layer = WeightDropLSTM(4, 5, 0.5)
    x = torch.ones(6, 2, 4)
    plain = torch.nn.LSTM(4, 5)
    plain.load_state_dict({**layer.lstm.state_dict(), "weight_hh_l0": layer.recurrent})
    torch.testing.assert_close(layer.eval()(x, None)[0], plain(x)[0])
    y, _ = layer.train()(x, None)
    kept = layer.lstm.weight_hh_l0
    assert 0 < (kept == 0).sum() < kept.numel()
    torch.testing.assert_close(kept[kept != 0], 2 * layer.recurrent[kept != 0])
    y.sum().backward()
    assert ((layer.recurrent.grad != 0) <= (kept != 0)).all() and layer.recurrent.grad.abs().sum() > 0


def test_a_channel_is_dropped_at_all_time_steps():
    y = LockedDropout(0.5)(torch.ones(7, 3, 50))
    assert (y == y[0]).all() and set(y.unique().tolist()) == {0.0, 2.0}
    assert not (y[0] == y[0, 0]).all()
