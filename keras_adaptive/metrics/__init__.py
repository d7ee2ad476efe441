from keras_adaptive.metrics.frequency_bins import loss_by_frequency as loss_by_frequency
from keras_adaptive.metrics.perplexity import Perplexity as Perplexity
from keras_adaptive.metrics.perplexity import perplexity as perplexity
