import json
import math

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("the peer is a program of PyTorch's own", allow_module_level=True)

import torch

from keras_adaptive.data import BlockBatches, load_corpus
from scripts.benchmarks.peers import torch_lm
from tests.support import programs
from tests.support.programs import call
from tests.support.text import prepared, write_zipf

pytestmark = [pytest.mark.once, pytest.mark.processes]
SMALL = {"num_blocks": 2, "dim": 32, "ffn_dim": 64, "num_heads": 2, "length": 8}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    how = {"words": 90, "lengths": (60, 60, 60), "line": 12, "seed": 0}
    return prepared(write_zipf(tmp_path_factory.mktemp("corpus"), **how)).data_dir


def small_model(vocabulary_size=96, dropout=0.0):
    torch.manual_seed(0)
    return torch_lm.TransformerLM(vocabulary_size, [16, 48], 2, 32, 64, 2, dropout, 8)


def ids(seed):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 96, (3, 8)))


def test_adaptive_input_projects_the_row_of_the_band():
    layer = torch_lm.AdaptiveInput(96, [16, 48], 32)
    embedded = layer(torch.tensor([[0, 15, 16, 47, 48, 95]]))[0]
    assert [table.weight.shape for table in layer.tables] == [(16, 32), (32, 8), (48, 2)]
    for row, (band, index) in enumerate([(0, 0), (0, 15), (1, 0), (1, 31), (2, 0), (2, 47)]):
        expected = layer.projections[band].weight @ layer.tables[band].weight[index]
        torch.testing.assert_close(embedded[row], expected)


def test_loss_is_the_sum_over_the_weighted_tokens():
    model, (inputs, targets) = small_model(), (ids(0), ids(1))
    weights = torch.ones(3, 8)
    weights[1, 3:] = 0
    each = torch.stack([model(inputs, targets, torch.eye(24)[i].view(3, 8)) for i in range(24)])
    torch.testing.assert_close(model(inputs, targets, weights), (each * weights.flatten()).sum())


def test_a_tied_peer_computes_the_softmax_of_the_tables_of_its_input():
    torch.manual_seed(0)
    model = torch_lm.TransformerLM(96, [16, 48], 1, 32, 64, 2, 0.0, 8).tie()
    inputs, targets = ids(0), ids(1)
    with torch.no_grad():
        x = model.input(inputs) * 32**0.5 + model.positions
        x = model.norm(model.blocks[0](x, src_mask=model.mask, is_causal=True)).flatten(0, 1)
        tables, projections = model.input.tables, model.input.projections
        head = torch.log_softmax(x @ torch.cat([tables[0].weight, model.classes]).T, -1)
        parts = [head[:, :16]]
        for band in (1, 2):
            tail = torch.log_softmax(x @ projections[band].weight @ tables[band].weight.T, -1)
            parts.append(head[:, 15 + band : 16 + band] + tail)
        expected = -torch.cat(parts, 1).gather(1, targets.reshape(-1, 1)).sum()
    loss = model(inputs, targets, torch.ones(3, 8))
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all((weight.grad is not None) == weight.requires_grad for weight in model.parameters())


def test_no_token_sees_what_follows_it():
    model, targets = small_model(), ids(1)
    first_half = (torch.arange(8) < 4).float().expand(3, 8)
    inputs, others = ids(0), torch.cat([ids(0)[:, :4], ids(2)[:, 4:]], dim=1)
    torch.testing.assert_close(model(inputs, targets, first_half), model(others, targets, first_half))


def test_evaluation_is_exact_whatever_the_batches(data_dir):
    tokens = load_corpus(data_dir).tokens("valid")
    model = small_model(len(load_corpus(data_dir).vocabulary), dropout=0.5)
    losses = []
    for batch_size in (1, 7, 64):
        batches = BlockBatches(tokens, 8, batch_size, seed=1, shuffle=False)
        nll = torch_lm.evaluate(model, map(batches.batch, range(len(batches))), "cpu")
        assert nll.shape == (len(tokens),)
        losses.append(nll.mean(dtype="float64"))
    model = small_model(len(load_corpus(data_dir).vocabulary), dropout=0.0)  # the slow path of training
    batch = BlockBatches(tokens, 8, 999, seed=1, shuffle=False).batch(0)
    expected = model(*torch_lm.to_device(batch, "cpu")).item() / len(tokens)
    assert losses == pytest.approx([expected] * 3, rel=1e-5)


def results_of(data_dir, folder, *flags):
    """Returns what the program writes."""
    sizes = [f"--{name}={value}" for name, value in SMALL.items()]
    places = [f"--data_dir={data_dir}", f"--results={folder / 'new' / 'results.json'}"]
    call(torch_lm, *sizes, "--cutoffs=16,48", "--threads=1", *places, *flags)
    return json.loads((folder / "new" / "results.json").read_text())


def test_program_learns_and_writes_its_results(data_dir, tmp_path):
    results, corpus = results_of(data_dir, tmp_path, "--updates=60"), load_corpus(data_dir)
    assert results["updates"] == 60
    assert results["valid_tokens"] == len(corpus.tokens("valid"))
    assert results["valid_perplexity"] == pytest.approx(math.exp(results["valid_loss"]))
    assert results["valid_perplexity"] < 0.7 * len(corpus.vocabulary)
    assert results["tokens_per_second"] == pytest.approx(results["tokens"] / results["seconds"])
    assert results["settings"]["dim"] == 32 and results["settings"]["threads"] == 1
    assert results["machine"]["versions"]["torch"] == torch.__version__


def test_program_stops_when_the_time_is_over(data_dir, tmp_path):
    assert 1.2 <= results_of(data_dir, tmp_path, "--minutes=0.02")["seconds"] < 10


def test_program_says_in_one_line_that_there_is_no_corpus(tmp_path, forks):
    done = programs.run("-m", "scripts.benchmarks.peers.torch_lm", f"--data_dir={tmp_path}")
    assert done.returncode == 1
    assert done.stderr.startswith("torch_lm: ") and len(done.stderr.splitlines()) == 1
