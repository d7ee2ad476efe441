"""Perplexity, metrics of ranks and of recommended items, losses by frequency and position, and mixtures of models."""

from keras_adaptive.metrics.average_popularity import AveragePopularity as AveragePopularity
from keras_adaptive.metrics.coverage import Coverage as Coverage
from keras_adaptive.metrics.frequency_bins import loss_by_bucket as loss_by_bucket
from keras_adaptive.metrics.frequency_bins import loss_by_frequency as loss_by_frequency
from keras_adaptive.metrics.hit_rate import HitRate as HitRate
from keras_adaptive.metrics.mixture import mixture_nll as mixture_nll
from keras_adaptive.metrics.mixture import mixture_weights as mixture_weights
from keras_adaptive.metrics.mrr import MRR as MRR
from keras_adaptive.metrics.ndcg import NDCG as NDCG
from keras_adaptive.metrics.perplexity import Perplexity as Perplexity
from keras_adaptive.metrics.perplexity import perplexity as perplexity
from keras_adaptive.metrics.positions import positions_after as positions_after
from keras_adaptive.metrics.positions import probability_by_length as probability_by_length
from keras_adaptive.metrics.positions import probability_by_position as probability_by_position
from keras_adaptive.metrics.rank_metric import RankMetric as RankMetric
