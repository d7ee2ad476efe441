"""Language models, and functions that build them."""

from keras_adaptive.models.constructors import assemble as assemble
from keras_adaptive.models.constructors import hybrid_transformer as hybrid_transformer
from keras_adaptive.models.constructors import shortformer as shortformer
from keras_adaptive.models.constructors import transformer as transformer
from keras_adaptive.models.constructors import transformer_lm as transformer_lm
from keras_adaptive.models.constructors import transformer_xl as transformer_xl
from keras_adaptive.models.dropout import Dropout as Dropout
from keras_adaptive.models.ensemble import Ensemble as Ensemble
from keras_adaptive.models.language_model import LanguageModel as LanguageModel
from keras_adaptive.models.model_file import read_language_model as read_language_model
from keras_adaptive.models.reading import Reading as Reading
from keras_adaptive.models.with_vocabulary import with_vocabulary as with_vocabulary
from keras_adaptive.models.without_logits import without_logits as without_logits
from keras_adaptive.models.word_model import WordModel as WordModel
