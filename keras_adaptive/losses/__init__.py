"""Training losses of output layers: what a row of logits is worth, and losses on a few classes."""

from keras_adaptive.losses.corrected_log_q import CorrectedLogQ as CorrectedLogQ
from keras_adaptive.losses.cross_entropy import CrossEntropy as CrossEntropy
from keras_adaptive.losses.gbce import GBCE as GBCE
from keras_adaptive.losses.row_loss import RowLoss as RowLoss
from keras_adaptive.losses.sampled import LOSSES as LOSSES
from keras_adaptive.losses.sampled import NCE as NCE
from keras_adaptive.losses.sampled import ImportanceSampling as ImportanceSampling
from keras_adaptive.losses.sampled import NoiseLoss as NoiseLoss
from keras_adaptive.losses.sampled import SampledLoss as SampledLoss
from keras_adaptive.losses.sce import SCE as SCE
