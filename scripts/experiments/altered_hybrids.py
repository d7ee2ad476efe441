"""Trains hybrids without parts that a recipe never leaves out (Sun and Iyyer 2021, section 2.1 and table 1).

    python -m scripts.experiments.altered_hybrids --alteration=no_residuals --data_dir=data/books \\
        --flagfile=configs/books_hybrids/nplm.flags --run_dir=runs/no_residuals

All other flags are those of trainers.train, and the same command resumes. No other program reads the models.

- `no_residuals`: a layer of the NPLM is norm(drop(ffn(x))), and the first one norm(drop(f(concatenation))). The sum
  of the averages is still added to every layer.
- `no_norms`: no layer of the NPLM has a LayerNorm.
- `old`: the NPLM of 2003, tanh(W [the vectors of the last `--num_local` tokens]) of `--concatenation_dim` dimensions.
- `local_attention`: every block of the Transformer attends to `--attention_window` tokens.
"""

import keras
from absl import flags
from keras import ops

from keras_adaptive.layers import CausalAttention, NPLMDecoder
from keras_adaptive.layers.bodies.body import Body
from trainers import train
from trainers.experiments.parts import PARTS, hybrid
from trainers.support import command_line

FLAGS = flags.FLAGS


class OldNPLM(Body):
    """The NPLM of Bengio et al. 2003, without direct connections of words and output."""

    def __init__(self, units, num_local, **kwargs):
        super().__init__(**kwargs)
        self.output_dim = units
        self.num_local = num_local
        self.dense = keras.layers.Dense(units, activation="tanh", dtype=self.dtype_policy)

    def build(self, input_shape):
        self.dense.build((*input_shape[:-1], self.num_local * input_shape[-1]))
        self.built = True

    def call(self, x, training=None):
        length, before = ops.shape(x)[1], self.num_local - 1
        padded = ops.pad(x * x.shape[-1] ** 0.5, [[0, 0], [before, 0], [0, 0]])
        last = [padded[:, before - age : before - age + length] for age in range(self.num_local)]
        return self.dense(ops.concatenate(last, axis=-1))

    def get_config(self):
        return {**super().get_config(), "units": self.output_dim, "num_local": self.num_local}


def old(*, concatenation_dim, num_local, **kwargs):
    return OldNPLM(concatenation_dim, num_local, name=kwargs.get("name"), dtype=kwargs.get("dtype"))


def without_residuals(**kwargs):
    body = NPLMDecoder(**kwargs)
    drop, norm = body.concatenation._drop, body.concatenation.norm

    def mix(x, state=None, training=False):
        branch, _, global_sum, state = body.concatenation._branches(x, state)
        return norm(drop(branch, training=training)), global_sum, state

    body.concatenation.mix = mix
    for block in body.blocks:
        block._feed_forward = branch_alone(block)
    return body


def branch_alone(block):
    def feed_forward(x, normed, training):
        return block.ffn_norm(block._drop(block.ffn_out(block.ffn_in(normed)), training=training))

    return feed_forward


def without_norms(**kwargs):
    body = NPLMDecoder(**kwargs)
    body.concatenation.norm = None
    for block in body.blocks:
        block.ffn_norm = keras.layers.Identity(dtype=body.dtype_policy)
    return body


def local_attention(*, attention_window, **kwargs):
    body = hybrid(attention_window=attention_window, **kwargs)
    for block in body.blocks[1:]:
        block.attention = CausalAttention.from_config({**block.attention.get_config(), "window": attention_window})
    return body


ALTERATIONS = {
    "no_residuals": ("nplm", without_residuals),
    "no_norms": ("nplm", without_norms),
    "old": ("nplm", old),
    "local_attention": ("hybrid", local_attention),
}


def define_flags():
    train.define_flags()
    flags.DEFINE_enum("alteration", None, list(ALTERATIONS), "What differs from the recipe.", required=True)


def main():
    body, make = ALTERATIONS[FLAGS.alteration]
    original = PARTS["body"][body]
    PARTS["body"] = {**PARTS["body"], body: original._replace(make=make)}
    train.main()


if __name__ == "__main__":
    command_line.run(main, define_flags)
