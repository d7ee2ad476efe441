"""Text in and out of a run, until the package has it."""

import math

from keras_adaptive.evaluation import state_grows
from trainers import score
from trainers.run_folder import RunFolder


class Codec:
    def __init__(self, run):
        self.vocabulary, self.tokenizer, self.unit = run.vocabulary(), run.tokenizer, run._metadata["unit"]
        self.tokenize, self.join, self.shown, self.count_words = run.tokenize(), run.join, run.shown, run.count_words
        self.keeps_mark, self.encode = run.keeps_mark, self.vocabulary.encode


class TextModel:
    def __init__(self, model, codec):
        self.trained, self.model, self.codec = model, model.for_inference(), codec

    def neighbors(self, word, k=3):
        return self.trained.word_input.neighbors(word, k)

    def score(self, texts, alternatives=0):
        tokens = [[*self.codec.tokenize(line), "</s>"] for line in texts]
        ids = [self.codec.encode(line) for line in tokens]
        longest = 512 if not state_grows(self.model.body) else min(512, self.model.body.max_length or math.inf)
        rows = [(score.np.append(2, own[:-1]), own) for own in ids]
        long = [row for row in rows if len(row[1]) > longest]
        short = [row for row in rows if len(row[1]) <= longest]
        found = dict(zip(map(id, short), score.score_rows(self.model, short, alternatives) if short else []))
        found |= {id(row): score.score_rows(self.model, [row], alternatives)[0] for row in long}
        how = self.model.word_output.boundaries, self.codec.count_words, self.codec.vocabulary
        return [
            score.as_record(one, own, found[id(row)], how[0], how[1](one), how[2])
            for one, own, row in zip(tokens, ids, rows)
        ]


def load(path, model="best"):
    run = RunFolder(path)
    return TextModel(run.model(model), Codec(run))
