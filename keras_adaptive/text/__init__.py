"""Language models that take and return text."""

from keras_adaptive.text.loading import load as load
from keras_adaptive.text.loading import read_model as read_model
from keras_adaptive.text.saved_text_model import SavedTextModel as SavedTextModel
from keras_adaptive.text.text_batches import TextBatches as TextBatches
from keras_adaptive.text.text_dataset import text_dataset as text_dataset
from keras_adaptive.text.text_model import TextModel as TextModel
