"""Trains an NPLM without its residual connections or its LayerNorms, two rows of table 1 of Sun and Iyyer 2021.

    python -m scripts.experiments.ablated_nplm --without=residual --flagfile=configs/books_hybrids/nplm.flags \\
        --data_dir=data/books --run_dir=runs/without_residual

The program takes the flags of trainers.train, too. `NPLMDecoder` has no argument for such models, because nothing else
needs them. The same command resumes a training. No other program can read its models.

Without residual connections a layer is norm(drop(ffn(x))), and the first one norm(drop(f(concatenation))). The sum of
the global blocks is still added to every layer, since it is no residual connection.
"""

import functools

import keras
from absl import flags

from keras_adaptive.layers import ContextConcatenation, NPLMDecoder, TransformerBlock
from keras_adaptive.layers.regularization.seeded_dropout import drop_in_training
from trainers import train
from trainers.experiments.parts import PARTS
from trainers.support import command_line

FLAGS = flags.FLAGS
CHOICES = ("residual", "norm")


class ConcatenationWithoutResidual(ContextConcatenation):
    """A `ContextConcatenation` without the sum of its blocks in the output."""

    def mix(self, x, state=None, training=False):
        branch, _, global_sum, state = self._branches(x, state)
        return self.norm(drop_in_training(self._drop, branch, training)), global_sum, state


class BlockWithoutResidual(TransformerBlock):
    """A feed-forward `TransformerBlock` without its input in the output."""

    def _feed_forward(self, x, training):
        inner = drop_in_training(self._drop_activation, self.ffn_in(x), training)
        return self.ffn_norm(drop_in_training(self._drop, self.ffn_out(inner), training))


@keras.saving.register_keras_serializable(package="scripts")
class AblatedNPLM(NPLMDecoder):
    """An `NPLMDecoder` without "residual" connections or without "norm" layers."""

    def __init__(self, num_layers, ffn_dim, *, without, **kwargs):
        super().__init__(num_layers, ffn_dim, **kwargs)
        self.without = without
        if without == "residual":
            self.concatenation = ConcatenationWithoutResidual.from_config(self.concatenation.get_config())
            self.blocks = [BlockWithoutResidual.from_config(block.get_config()) for block in self.blocks]
        else:
            self.concatenation.norm = None
            for block in self.blocks:
                block.ffn_norm = keras.layers.Identity(dtype=self.dtype_policy)

    def get_config(self):
        return {**super().get_config(), "without": self.without}


def define_flags():
    train.define_flags()
    flags.DEFINE_enum("without", None, CHOICES, "What the layers of the NPLM lack.", required=True)


def main():
    ablated = functools.partial(AblatedNPLM, without=FLAGS.without)
    PARTS["body"]["nplm"] = PARTS["body"]["nplm"]._replace(make=ablated)
    train.main()


if __name__ == "__main__":
    command_line.run(main, define_flags)
