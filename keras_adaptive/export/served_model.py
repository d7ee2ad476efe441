import functools

from keras_adaptive.models.reading import hidden_in_windows, reading_of
from keras_adaptive.models.steering import FORBIDDEN, best_allowed, draw_allowed
from keras_adaptive.ops import long_rows
from keras_adaptive.special_words import EOS, PAD, UNK

BEST = (1, 10, 100, 1000)  # values of k for which a top-k search is built; the last one is the limit


class ServedModel:
    """Provides the signatures of a SavedModel: a language model as TensorFlow functions of text.

    Every string is a text, which is read after a `</s>`. A line break in it becomes `</s>`, as in `split_lines`; other
    white space separates words. A literal `</s>` ends a line, too. Words outside the vocabulary are read and scored as
    `<unk>`; a `CharCNN` reads them by their bytes. Bytes that are not UTF-8 become U+FFFD. The empty string is the
    beginning of a line. Attention reads a text that is longer than the model's training rows in the same windows as
    `TextModel`.

    - `score(text)`, string (batch,), returns
      `log_prob`, `perplexity`: float32 (batch,), the log-probability of the line with its `</s>` in nats, and its
      perplexity per word;
      `words`, `lengths`: int32 (batch,), the numbers of words and of tokens, including the `</s>`;
      `tokens`, `log_probs`, `unknown`: string, float32 and bool (batch, longest), the tokens, their log-probabilities,
      and whether they were scored as `<unk>`. Entries after the end of a line are "", 0 and false;
      `reading`: string (batch,), how the line was read, such as "in windows of 64 tokens, 32 of them context".
    - `next_words(text, k)`, string (batch,) and int32 (), returns
      `words`, `probabilities`: string and float32 (batch, k), the k most probable next words with their exact
      probabilities, in descending order. The words are pieces if the model has sub-words.
    - `generate(text, length, temperature, top_k, seed)`, string (batch,), int32 (), float32 (), int32 () and int32 (),
      returns
      `text`, `tokens`: string (batch,) and string (batch, length), the continuation, without `<unk>`. Temperature 0
      takes the most probable word, and temperature 1 samples from the model's distribution. `top_k` 0 samples from all
      words. A seed gives a row the same text whatever rows follow it in the batch. `TextModel.generate` uses other
      random numbers and gives a different text.
    - `log_probs(token_ids)`, int32 (batch, length), returns
      `log_probs`: float32 (batch, length, vocabulary), the log-probabilities of the word after each token.

    Numbers are checked before the text is read. The length of lines is checked before words are cut into pieces and
    before anything is computed. A refused request therefore takes memory in proportion to its own size. An accepted
    request takes memory in proportion to the number of rows times the tokens of the longest row, including generated
    tokens; `log_probs` returns as many numbers times the vocabulary. Servers limit the number of rows by the size of a
    request.

    Args:
        model: A `LanguageModel` on TensorFlow.
        text: A `GraphText`.
        max_length: Largest number of tokens of a line with its `</s>` and its continuation.
        reading: The `Reading` of lines, by default that of the model. Optional.

    Raises:
        tf.errors.InvalidArgumentError: When a function is called with a line that is too long, a number outside its
            range, or ids outside the vocabulary.
    """

    def __init__(self, model, text, max_length, reading=None):
        self.word_input, self.body, self.word_output = model.word_input, model.body, model.word_output
        self.vocabulary_size = model.vocabulary_size
        self.text = text
        self.reading = reading or reading_of(model)
        self.max_length = max_length
        self.best = sorted({min(size, model.vocabulary_size) for size in BEST})

    def functions(self):
        """Returns `{name: tf.function}`; each function has one input signature and returns a dict."""
        import tensorflow as tf

        text, number = tf.TensorSpec([None], tf.string, "text"), functools.partial(tf.TensorSpec, [])
        inputs = {
            self.score: [text],
            self.next_words: [text, number(tf.int32, "k")],
            self.generate: [
                text,
                number(tf.int32, "length"),
                number(tf.float32, "temperature"),
                number(tf.int32, "top_k"),
                number(tf.int32, "seed"),
            ],
            self.log_probs: [tf.TensorSpec([None, None], tf.int32, "token_ids")],
        }
        return {method.__name__: tf.function(method, specs, autograph=False) for method, specs in inputs.items()}

    def score(self, text):
        import tensorflow as tf

        tokens, ids, lengths = self._read(tf.strings.regex_replace(text, r"\n\z", ""))
        hidden = hidden_in_windows(self.body, self._vectors(tokens, ids), self.reading)
        inside, last = tf.sequence_mask(lengths), tf.one_hot(lengths - 1, tf.shape(ids)[1], True, False, dtype=tf.bool)
        tokens, ids = (tf.where(last, end, tf.roll(t, -1, 1)) for t, end in ((tokens, "</s>"), (ids, EOS)))
        targets = _known(ids)
        nll = self.word_output.nll(hidden, tf.where(inside, targets, -1))
        log_probs = tf.where(inside, -nll, 0.0)
        total = tf.reduce_sum(tf.cast(log_probs, tf.float64), axis=1)
        words = tf.math.count_nonzero(self.text.begins_word(targets) & inside, axis=1, dtype=tf.int32)
        return {
            "log_prob": tf.cast(total, tf.float32),
            "perplexity": tf.cast(tf.exp(-total / tf.cast(words, tf.float64)), tf.float32),
            "words": words,
            "lengths": lengths,
            "tokens": tf.where(inside, tokens, ""),
            "log_probs": log_probs,
            "unknown": inside & (ids < 0),
            "reading": tf.where(
                tf.cast(lengths, tf.float32) <= self.reading.whole, self.reading.describe(1), self.reading.describe()
            ),
        }

    def next_words(self, text, k):
        import tensorflow as tf

        most = self.best[-1]
        text = _checked(text, (k > 0) & (k <= most), f"`k` must be from 1 to {most}. Received:", k)
        tokens, ids, lengths = self._read(text)
        begins = self.reading.begin(lengths - 1, tf.maximum)
        longest = tf.maximum(tf.reduce_max(lengths - begins), 0)  # no rows have none
        window = begins[:, None] + tf.range(longest)  # only the last window is read
        tokens, ids = (tf.gather(t, tf.minimum(window, tf.shape(ids)[1] - 1), batch_dims=1) for t in (tokens, ids))
        hidden = self.body(self._vectors(tokens, ids), training=False)
        hidden = tf.gather(hidden, lengths - 1 - begins, batch_dims=1)
        log_probs, ids = self._by_size(k, lambda size: [best[:, :k] for best in self.word_output.top_k(hidden, size)])
        return {"words": self.text.tokens(ids), "probabilities": tf.exp(log_probs)}

    def generate(self, text, length, temperature, top_k, seed):
        import tensorflow as tf

        most = self.best[-1]
        for in_range, message, number in (  # all numbers are checked before the text is read
            ((length > 0) & (length <= self.max_length), f"`length` must be from 1 to {self.max_length}.", length),
            (temperature >= 0, "`temperature` must not be negative.", temperature),
            ((top_k >= 0) & (top_k <= most), f"`top_k` must be from 1 to {most}, or 0 for all words.", top_k),
        ):
            text = _checked(text, in_range, f"{message} Received:", number)
        tokens, ids, lengths = self._read(text, length)
        with tf.control_dependencies([lengths]):  # tensors of this length are allocated after the check of the lines
            length = tf.identity(length)
        batch, longest = tf.unstack(tf.shape(ids))
        shortest, total = tf.minimum(tf.reduce_min(lengths), longest), longest + length
        first, capacity = shortest - 1, total
        if self.reading.window is not None:
            capacity = tf.minimum(total, self.reading.window)
        room = [[0, 0], [0, length]]
        tokens, ids = tf.pad(tokens, room), tf.pad(ids, room)

        def read(places, ids, state):
            """Returns the hidden states of the tokens at some places, and the state after them."""
            given, ids = tf.gather(tokens, places, axis=1), tf.gather(ids, places, axis=1)
            given = tf.where(places < lengths[:, None], given, self.text.tokens(_known(ids)))
            return self.body.step(self._vectors(given, ids), state)

        def begun(place, ids):
            """Returns the state before the token at `place`, after the earlier tokens of its window."""
            state = self.body.initial_state(batch, capacity)
            places = tf.range(self.reading.begin(place, tf.maximum), place)
            # A recurrent body cannot step over zero tokens.
            return tf.cond(tf.size(places) > 0, lambda: read(places, ids, state)[1], lambda: state)

        def step(place, ids, state):
            """Reads the token at `place` and writes the next one: the prompt's or, after its end, a sampled one."""
            if self.reading.window is not None:
                moves = self.reading.begin(place, tf.maximum) > self.reading.begin(place - 1, tf.maximum)
                state = tf.cond(moves & (place > first), lambda: begun(place, ids), lambda: state)
            hidden, state = read(place[None], ids, state)
            uniform = tf.random.stateless_uniform([batch, 3], [seed, place], alg="philox")
            drawn = self._draw(hidden[:, -1], tf.transpose(uniform), temperature, top_k)
            place = place + 1
            id = tf.where(place < lengths, ids[:, place], drawn)
            return place, tf.concat([ids[:, :place], id[:, None], ids[:, place + 1 :]], axis=1), state

        start = (first, ids, begun(first, ids))
        ids = tf.while_loop(lambda place, *_: place < total - 1, step, start, parallel_iterations=1)[1]
        places = lengths[:, None] + tf.range(length)
        new = tf.gather(ids, places, batch_dims=1)
        begins_line = tf.strings.regex_full_match(text, r"(?s)|.*\n")
        return {"text": self.text.detokenize(new, begins_line), "tokens": self.text.tokens(new)}

    def log_probs(self, token_ids):
        import tensorflow as tf

        inside = tf.reduce_all((token_ids >= 0) & (token_ids < self.vocabulary_size))
        ids = _checked(
            token_ids, inside, f"`token_ids` must be from 0 to {self.vocabulary_size - 1}. Received:", token_ids
        )
        ids = self._within_limit(ids, tf.shape(ids)[1])
        hidden = hidden_in_windows(self.body, self._vectors(self.text.tokens(ids), ids), self.reading)
        return {"log_probs": self.word_output.log_probs(hidden)}

    def _read(self, text, length=0):
        """Returns tokens and ids (batch, longest) of each line after a `</s>`, and the lengths (batch,) of the rows.

        Shorter rows are padded with `<pad>`. `length` more tokens must fit in every row.
        """
        import tensorflow as tf

        def within_limit(tensor, numbers):
            longest = tf.reduce_max(tf.cast(numbers, tf.int64), axis=0) + 1 + tf.cast(length, tf.int64)  # no overflow
            return self._within_limit(tensor, longest)

        tokens, ids = self.text.encode(text, within_limit)
        numbers = ids.row_lengths()
        lengths = within_limit(tf.cast(numbers, tf.int32) + 1, numbers)
        with tf.control_dependencies([lengths]):
            tokens, ids = tf.identity(tokens).to_tensor("<pad>"), tf.identity(ids).to_tensor(PAD)
        front = tf.zeros_like(lengths)[:, None]
        return tf.concat([tf.fill(tf.shape(front), "</s>"), tokens], 1), tf.concat([front + EOS, ids], 1), lengths

    def _within_limit(self, tensor, length):
        message = f"A line may have {self.max_length} tokens, including its </s> and generated tokens: shorten it. "
        return _checked(tensor, length <= self.max_length, message + "Received:", length)

    def _vectors(self, tokens, ids):
        """Returns the word vectors of tokens and ids (batch, length). A `CharCNN` computes each distinct word once."""
        import tensorflow as tf

        if self.word_input.max_bytes is None:
            return self.word_input(_known(ids))
        words, places = tf.unique(tf.reshape(tokens, [-1]))
        ids = tf.math.unsorted_segment_max(tf.reshape(ids, [-1]), places, tf.size(words))
        ids = tf.where(ids < 0, self.vocabulary_size, ids)
        slots = self.word_input.max_bytes
        lengths = tf.where(ids > UNK, tf.strings.length(words), 0)
        characters = 1 + tf.cast(tf.io.decode_raw(words, tf.uint8, fixed_length=slots), tf.int32)
        characters = tf.where(tf.range(slots) < lengths[:, None], characters, 0)
        vectors = tf.gather(self.word_input.embed_bytes(characters, ids, ids >= 0), places)
        return tf.reshape(vectors, [*tf.unstack(tf.shape(tokens)), self.word_input.output_dim])

    def _by_size(self, k, function):
        """Returns `function(size)` for the smallest size in `self.best` that is at least k; it searches fewer tails."""
        import tensorflow as tf

        cases = [functools.partial(function, size) for size in self.best]
        return tf.switch_case(tf.math.count_nonzero(k > self.best, dtype=tf.int32), cases)

    def _draw(self, hidden, uniform, temperature, top_k):
        """Samples the next word of each row, not `<unk>`, from hidden states (rows, dim) and numbers (3, rows)."""
        import tensorflow as tf

        greedy, output = temperature == 0, self.word_output
        among, heat = tf.where(greedy, 1, top_k), tf.where(greedy, 1.0, temperature)
        bias = tf.one_hot(UNK, self.vocabulary_size, FORBIDDEN, 0.0)

        def among_best(size):
            best = best_allowed(output, hidden, min(size + 1, self.vocabulary_size), bias)
            return long_rows.draw_best(*best, uniform[0], heat, among)

        def among_all():
            return long_rows.draw(long_rows.tempered(output.log_probs(hidden) + bias, heat), uniform[0])

        ways = [
            (among > 0, lambda: self._by_size(among, among_best)),
            (heat == 1, lambda: draw_allowed(output, hidden, uniform, bias)),
        ]
        return tf.case(ways, among_all)


def _known(ids):
    """Replaces negative ids, which stand for words outside the vocabulary, by the id of `<unk>`."""
    import tensorflow as tf

    return tf.where(ids < 0, UNK, ids)


def _checked(tensor, condition, *message):
    """Returns `tensor` after asserting the condition."""
    import tensorflow as tf

    with tf.control_dependencies([tf.debugging.Assert(condition, message)]):
        return tf.identity(tensor)
