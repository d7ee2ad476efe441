from keras_adaptive.optimizers.cosine_restarts import CosineRestarts as CosineRestarts
from keras_adaptive.optimizers.nag import NAG as NAG
