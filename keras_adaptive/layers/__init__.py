"""Layers of word models: inputs, bodies and outputs."""

from keras_adaptive.layers.bodies.body import Body as Body
from keras_adaptive.layers.bodies.causal_attention import CausalAttention as CausalAttention
from keras_adaptive.layers.bodies.context_concatenation import ContextConcatenation as ContextConcatenation
from keras_adaptive.layers.bodies.learned_positions import LearnedPositions as LearnedPositions
from keras_adaptive.layers.bodies.lstm_decoder import LSTMDecoder as LSTMDecoder
from keras_adaptive.layers.bodies.mixer import Mixer as Mixer
from keras_adaptive.layers.bodies.nplm_decoder import NPLMDecoder as NPLMDecoder
from keras_adaptive.layers.bodies.position_infused_attention import PositionInfusedAttention as PositionInfusedAttention
from keras_adaptive.layers.bodies.qrnn_decoder import QRNNDecoder as QRNNDecoder
from keras_adaptive.layers.bodies.recurrent_dropout import RecurrentDropout as RecurrentDropout
from keras_adaptive.layers.bodies.relative_attention import RelativeAttention as RelativeAttention
from keras_adaptive.layers.bodies.sinusoidal_positions import SinusoidalPositions as SinusoidalPositions
from keras_adaptive.layers.bodies.transformer_block import TransformerBlock as TransformerBlock
from keras_adaptive.layers.bodies.transformer_decoder import TransformerDecoder as TransformerDecoder
from keras_adaptive.layers.inputs.adaptive_embedding import AdaptiveEmbedding as AdaptiveEmbedding
from keras_adaptive.layers.inputs.char_cnn import CharCNN as CharCNN
from keras_adaptive.layers.inputs.input import Input as Input
from keras_adaptive.layers.inputs.word_embedding import WordEmbedding as WordEmbedding
from keras_adaptive.layers.outputs.adaptive_retrieval import AdaptiveRetrieval as AdaptiveRetrieval
from keras_adaptive.layers.outputs.adaptive_softmax import AdaptiveSoftmax as AdaptiveSoftmax
from keras_adaptive.layers.outputs.char_cnn_softmax import CharCNNSoftmax as CharCNNSoftmax
from keras_adaptive.layers.outputs.char_lstm_softmax import CharLSTMSoftmax as CharLSTMSoftmax
from keras_adaptive.layers.outputs.linear_cross_entropy import LinearCrossEntropy as LinearCrossEntropy
from keras_adaptive.layers.outputs.output import Output as Output
from keras_adaptive.layers.outputs.sampled_softmax import SampledSoftmax as SampledSoftmax
from keras_adaptive.layers.regularization.activation_regularization import (
    ActivationRegularization as ActivationRegularization,
)
from keras_adaptive.layers.regularization.embedding_dropout import EmbeddingDropout as EmbeddingDropout
from keras_adaptive.layers.regularization.seeded_dropout import SeededDropout as SeededDropout
from keras_adaptive.layers.regularization.temporal_activation_regularization import (
    TemporalActivationRegularization as TemporalActivationRegularization,
)
from keras_adaptive.layers.regularization.variational_dropout import VariationalDropout as VariationalDropout
from keras_adaptive.layers.regularization.weight_drop import WeightDrop as WeightDrop
