"""Flags of the outputs that are computed from characters."""

import pytest

from keras_adaptive.layers import CharCNNSoftmax, CharLSTMSoftmax
from keras_adaptive.losses import NCE
from trainers.experiments import summary
from trainers.experiments.experiment import Experiment

pytestmark = pytest.mark.once


def test_outputs_of_characters_are_those_of_the_settings():
    """One flag means the same for input and output."""
    sizes = ["--dim=16", "--num_heads=2", "--ffn_dim=32", "--num_blocks=1", "--output_dim=8", "--char_dim=3"]
    cnn = [*sizes, "--input=char_cnn", "--output=char_cnn", "--filters=2,3", "--num_samples=5", "--correction_dim=2"]
    nce = ["--sampled_loss=nce", "--notie_words", "--word_markers"]
    model = Experiment.of_arguments([*cnn, *nce]).model(summary.stand_in(40))
    output = model.word_output
    assert isinstance(output, CharCNNSoftmax) and output.num_samples == 5 and output.corrections.shape == (40, 2)
    assert output.char_cnn.table.shape == model.word_input.table.shape == (259, 3)
    assert isinstance(output.loss, NCE) and output.char_cnn.output_dim == 8 and output.char_cnn.filters == (2, 3)
    assert summary.parameters(model)["words out"] == output.count_params()
    lstm = [*sizes, "--input=word", "--output=char_lstm", "--output_units=4"]
    output = Experiment.of_arguments([*lstm, "--notie_words"]).model(summary.stand_in(40)).word_output
    assert isinstance(output, CharLSTMSoftmax) and output.kernel.shape == (8 + 3, 16)
    for name, arguments in (("char_cnn", cnn), ("char_lstm", lstm)):
        with pytest.raises(ValueError, match=f"pass --notie_words. Received: --input=.* --output={name}"):
            Experiment.of_arguments(arguments).model(summary.stand_in(40))
