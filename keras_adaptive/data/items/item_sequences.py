import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_adaptive.data.batches.item_batches import ItemBatches, check_sizes
from keras_adaptive.data.batches.token_stream import cut
from keras_adaptive.data.codecs.vocabulary import Vocabulary
from keras_adaptive.data.items.columns import moments, numbered, read_columns
from keras_adaptive.data.items.splits import LEAVE_ONE_OUT, split_starts
from keras_adaptive.files import checksum, complete_or_absent, read_text, reading, write_json
from keras_adaptive.special_words import SPECIAL_WORDS, UNK

if TYPE_CHECKING:  # Keras is imported with the first data set
    from keras_adaptive.data.batches.batch_dataset import BatchDataset

_FORMAT = 1
_FACTS, _CLICKS, _VOCABULARY = "sequences.json", "clicks.npz", "vocabulary.txt"
_TARGETS = ("valid", "test")
_MEND = "Put the files back, or make the sequences again."


def item_sequences(
    table: Any,
    *,
    user: str = "user",
    item: str = "item",
    time: str | None = "time",
    split: str | Sequence[Any] | None = LEAVE_ONE_OUT,
    vocabulary: Vocabulary | None = None,
) -> "ItemSequences":
    """Reads a table of clicks and returns the sequence of items of each user, split for training and evaluation.

    Clicks are sorted by user and time; clicks of one user at the same time keep the order of the table. Items get ids
    in descending order of their counts in the training clicks, as the adaptive layers need them. Items are compared
    exactly: "Tea" and "tea" are two items.

    Args:
        table: Path of a CSV or Parquet file, which PyArrow reads (`pip install "keras_adaptive[tables]"`; a column of
            digits in a CSV file holds integers), or an object with `table[name]` for the columns below: a dict of
            arrays, or a table of pandas, polars or PyArrow.
        user, item: Names of the columns of users and items. Their values are strings, integers or other hashable
            objects of one type.
        time: Name of the column of times: numbers, dates, or strings of dates in ISO 8601. `None` if the clicks are in
            the order of their times.
        split: Which clicks are targets of the evaluation. `"leave_one_out"`: the last click of a user is the test
            target and the one before it the validation target; users with fewer than three clicks are for training
            only. A pair of times, such as `("2026-01-01", "2026-02-01")`: validation targets are all clicks since the
            first time, test targets those since the second. A pair of shares, such as `(0.1, 0.1)`: the same, with
            times that leave these shares of the clicks to validation and test. `None`: all clicks are for training.
        vocabulary: The `Vocabulary` of an earlier log, whose ids are kept; other items are unknown. Optional.

    Returns:
        The `ItemSequences`.

    Raises:
        ModuleNotFoundError: If a file is given and PyArrow is not installed.
        ValueError: If a column is missing, has missing values, values of several types or another length than the
            others, if a time is neither a number nor a date, or if no click is left for training.

    Reference:
        Kang and McAuley, Self-Attentive Sequential Recommendation, ICDM 2018, section IV-A (leave-one-out).

    Example:

    >>> table = {"user": [7, 7, 7, 7, 8, 8], "item": list("abacab"), "time": [1, 2, 3, 4, 1, 2]}
    >>> sequences = item_sequences(table)
    >>> sequences.vocabulary.words[4:]
    ['a', 'b']
    >>> sequences.summary["test"]  # the target of user 7, c, is in no training click
    {'targets': 0, 'unseen': 1, 'without_history': 0}
    """
    columns = read_columns(table, [user, item] if time is None else [user, item, time])
    users, rows_of_users = numbered(columns[0], user)
    users, rows_of_users = _in_order(users, rows_of_users)
    items, numbers = numbered(columns[1], item)
    if special := set(SPECIAL_WORDS).intersection(items):
        raise ValueError(f"The column {item!r} must not hold {SPECIAL_WORDS}: rename items. Received: {special}.")
    times = np.arange(len(numbers)) if time is None else moments(columns[2], time)
    del columns, table
    order = _sorted_by(rows_of_users, times)
    offsets = np.append(0, np.cumsum(np.bincount(rows_of_users, minlength=len(users))))
    starts = split_starts(split, times[order], offsets)
    numbers = numbers[order]
    if vocabulary is None:
        vocabulary = _vocabulary(items, numbers[_inside(offsets[:-1], starts[0], len(numbers))])
    return ItemSequences(vocabulary, vocabulary.encode(items)[numbers], users, offsets, starts)


def _in_order(values, numbers):
    """Returns distinct values in ascending order, if they have one, and for each row the number of its value."""
    try:
        order = sorted(range(len(values)), key=values.__getitem__)
    except TypeError:
        return values, numbers
    places = np.empty(len(values), np.int64)
    places[order] = np.arange(len(values))
    return [values[place] for place in order], places[numbers]


def _sorted_by(users, times):
    """Returns the stable order of clicks by user, then by time. NumPy sorts digits of 16 bits in linear time."""
    order = np.argsort(times, kind="stable")
    for shift in range(0, int(users.max()).bit_length(), 16):
        digits = (users[order] >> shift).astype(np.uint16)
        order = order[np.argsort(digits, kind="stable")]
    return order


def _inside(starts, stops, size):
    """Returns whether each of `size` positions is in one of the ranges from `starts` to `stops`, which do not meet."""
    changes = np.zeros(size + 1, np.int8)
    np.add.at(changes, starts, 1)
    np.add.at(changes, stops, -1)
    return np.cumsum(changes[:-1], dtype=np.int8).astype(bool)


def _vocabulary(items, numbers):
    counts = np.bincount(numbers, minlength=len(items)).tolist()
    return Vocabulary.from_counts({item: count for item, count in zip(items, counts) if count}, multiple_of=1)


class ItemSequences:
    """Clicks of users in the order of time, as ids of items, split into training, validation and test.

    `item_sequences` makes it from a table. An item outside the vocabulary, such as one without a training click, is
    unknown: its id is that of `<unk>`. In a history it stays in its place. As a target it is left out and counted
    (`summary`), since no model of these ids can predict it.

    Args:
        vocabulary: The `Vocabulary` of the items. Ids 0 to 3 are special, and items begin at 4.
        items: Ids of the clicked items, int32 (clicks,), user after user.
        users: List of the users, in the order of their clicks.
        offsets: Position of the first click of each user, followed by the number of clicks: (users + 1,).
        starts: Positions where the validation and the test clicks of each user begin: (2, users).

    Example:

    ```python
    log = {"user": [7, 7, 7, 7, 8, 8, 8], "item": list("abacaba"), "time": range(7)}
    sequences = item_sequences(log)
    train = sequences.batches(50, 2, seed=1)
    tokens, targets, weights = sequences.histories("test", 50)
    sequences.vocabulary.decode(targets[weights > 0])  # ['a']; c is unseen in training
    ```
    """

    def __init__(
        self, vocabulary: Vocabulary, items: np.ndarray, users: list[Any], offsets: np.ndarray, starts: np.ndarray
    ) -> None:
        self.vocabulary = vocabulary
        self.items = items
        self.users = users
        self.offsets = offsets
        self.starts = starts

    @property
    def summary(self) -> dict[str, Any]:
        """Numbers of `users`, `items` and `clicks`, of `train_clicks`, and of `users_without_targets` in training.

        For `valid` and `test`, the number of `targets`, of targets that are left out because their item is `unseen` in
        training, and of clicks `without_history` before them, which are no targets either.
        """
        train = self.starts[0] - self.offsets[:-1]
        facts = {"users": len(self.users), "items": len(self.vocabulary) - len(SPECIAL_WORDS)}
        facts |= {"clicks": len(self.items), "train_clicks": int(train.sum())}
        facts["users_without_targets"] = int((train < 2).sum())
        for split in _TARGETS:
            users, positions = self._clicks(split)
            first, unseen = positions == self.offsets[users], self.items[positions] == UNK
            counts = {"targets": ~(first | unseen), "unseen": unseen & ~first, "without_history": first}
            facts[split] = {name: int(count.sum()) for name, count in counts.items()}
        return facts

    def __repr__(self) -> str:
        return f"<ItemSequences {self.summary}>"

    def batches(
        self, length: int, batch_size: int, *, seed: int, start: int = 0, shuffle: bool = True
    ) -> "BatchDataset":
        """Returns the batches of training, a `keras.utils.PyDataset` for `fit(batches, shuffle=False)`.

        A row has the last `length + 1` training clicks of a user, as in SASRec: `(tokens, targets, weights)`, each
        (batch_size, length), int32, int32 and float32, where targets are the tokens that follow. Rows are padded on the
        right, where causal models need no mask; padding has weight 0. An epoch has one row per user. The batch of
        update t is a function of `(seed, t)`.

        Args:
            length: Number of clicks that the model reads.
            batch_size: Number of users in a batch.
            seed: Integer that determines the order of the users.
            start: Number of updates that an interrupted training has made, to continue after them.
            shuffle: Whether the users are shuffled.

        Raises:
            ValueError: If a size is below 1, or no user has two training clicks.
        """
        from keras_adaptive.data.batches.batch_dataset import BatchDataset

        rows = ItemBatches(
            self.items,
            self.offsets[:-1],
            self.starts[0],
            length=length,
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
        )
        return BatchDataset(rows, start=start)

    def targets(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the users and the positions of the targets of a split, in the order of `histories`.

        Args:
            split: `"valid"` or `"test"`.

        Returns:
            `(users, positions)`, int64 (targets,) each: places in the list `users` and in `items`.
        """
        users, positions = self._clicks(split)
        known = (positions > self.offsets[users]) & (self.items[positions] != UNK)
        return users[known], positions[known]

    def histories(self, split: str, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the histories before the targets of a split, for `evaluate` and for ranks.

        A history has all clicks of the user before the target, those of earlier splits included, but at most the last
        `length`. It is padded on the right as in training. The model predicts the target where the history ends: only
        there the weight is 1, so that `targets[weights > 0]` are the targets (rows,), and `hidden[weights > 0]` are
        their hidden states.

        Args:
            split: `"valid"` or `"test"`.
            length: Number of clicks that the model reads.

        Returns:
            `(tokens, targets, weights)`, each (rows, length), int32, int32 and float32, with one row per target, in the
            order of the users.

        Raises:
            ValueError: If `split` is unknown or has no targets, or `length` is below 1.
        """
        check_sizes(length=length)
        users, positions = self.targets(split)
        if not len(users):
            raise ValueError(f"The split {split!r} has no targets: choose another `split` in `item_sequences`.")
        first = np.maximum(self.offsets[users], positions - length)
        tokens, targets, _ = cut(self.items, first + 1, positions + 1, length)
        last = np.arange(length) == (positions - first - 1)[:, None]
        return tokens, targets, last.astype(np.float32)

    def _clicks(self, split):
        """Returns the users and the positions of all clicks of a split."""
        if split not in _TARGETS:
            raise ValueError(f"`split` must be one of {_TARGETS}. Received: split={split!r}.")
        place = _TARGETS.index(split)
        starts, stops = [*self.starts, self.offsets[1:]][place:][:2]
        users = np.repeat(np.arange(len(starts)), stops - starts)
        return users, np.flatnonzero(_inside(starts, stops, len(self.items)))

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the vocabulary and the clicks to a new folder, which appears only when it is complete.

        Raises:
            OSError: If the folder exists and is not empty.
            ValueError: If users or items are neither strings nor numbers.
        """
        users = np.asarray(self.users)
        if users.dtype.kind not in "iufUb" or users.shape != (len(self.users),):
            raise ValueError(f"Only users that are strings or numbers can be saved. Received: {self.users[0]!r}.")
        with complete_or_absent(folder) as new:
            self.vocabulary.save(new / _VOCABULARY)
            arrays = {"items": self.items, "offsets": self.offsets, "starts": self.starts, "users": users}
            np.savez(new / _CLICKS, allow_pickle=False, **arrays)
            checksums = {name: _hexadecimal(new / name) for name in (_CLICKS, _VOCABULARY)}
            write_json(new / _FACTS, {"format": _FORMAT, "crc32": checksums})

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "ItemSequences":
        """Reads what `save` wrote.

        Raises:
            ValueError: If a file is missing, damaged or of another call of `save`.
        """
        for name in (_FACTS, _CLICKS, _VOCABULARY):
            if not Path(folder, name).is_file():
                raise ValueError(f"{folder} holds no item sequences ({name} is missing). {_MEND}")
        path = Path(folder, _FACTS)
        with reading(path, "the description of item sequences", _MEND):
            facts = json.loads(read_text(path))
            if facts["format"] != _FORMAT:
                raise ValueError(f"`format` must be {_FORMAT}")
            checksums = dict(facts["crc32"])
        for name in (_CLICKS, _VOCABULARY):
            if checksums.get(name) != _hexadecimal(Path(folder, name)):
                raise ValueError(f"{Path(folder, name)} has changed since it was written. {_MEND}")
        vocabulary, path = Vocabulary.load(Path(folder, _VOCABULARY)), Path(folder, _CLICKS)
        with reading(path, "a file of clicks", _MEND), np.load(path, allow_pickle=False) as arrays:
            items, offsets, starts, users = (arrays[name] for name in ("items", "offsets", "starts", "users"))
        return cls(vocabulary, items, users.tolist(), offsets, starts)


def _hexadecimal(path):
    return f"{checksum(path):08x}"
