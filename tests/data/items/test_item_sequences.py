"""Sequences of clicks are those that plain Python makes of the same table, whatever kind of table it is."""

import sys
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from keras_adaptive.data import PAD, UNK, ItemSequences, item_sequences
from tests.support.refusals import refused

pytestmark = pytest.mark.once

RANDOM = np.random.default_rng(0)
USERS = RANDOM.integers(-3, 60, 900) * 7
ITEMS = RANDOM.zipf(1.3, 900) % 200 + 5
TIMES = RANDOM.integers(0, 300, 900)  # many at the same time
USERS[:11] = 1_001 + np.arange(11) // 2  # users of one and of two clicks
TIMES[:11] = np.arange(11) * 27  # also of those who come late
NAMES = np.array([f"i{item}" for item in range(300)])
DATES = np.datetime64("2026-01-01") + TIMES
TABLE = {"user": USERS, "item": ITEMS, "time": TIMES}
FIRST, SECOND = 200, 260  # borders of time


def histories(users, items, times):
    """Returns the (time, item) of each user, in the order of the users; Python's sort is stable."""
    clicks = defaultdict(list)
    for user, item, time in zip(users, items, times, strict=True):
        clicks[user].append((time, item))
    return {user: sorted(clicks[user], key=lambda click: click[0]) for user in sorted(clicks)}


def parts(clicks, split):
    """Returns the numbers of clicks of a user before validation and before the test."""
    if split == "leave_one_out":
        tested = len(clicks) >= 3
        return len(clicks) - 2 * tested, len(clicks) - tested
    return tuple(sum(time < border for time, _ in clicks) for border in split)


def expected(split, length, users=USERS, items=ITEMS, times=TIMES):
    """Returns the counts in training, and for each split the histories and targets, of items instead of ids."""
    counts, found = Counter(), {"valid": [], "test": []}
    clicks_of = histories(users, items, times)
    for clicks in clicks_of.values():
        counts.update(item for _, item in clicks[: parts(clicks, split)[0]])
    for clicks in clicks_of.values():
        valid, test = parts(clicks, split)
        names = [item if item in counts else "<unk>" for _, item in clicks]
        for place in range(valid, len(clicks)):
            if place and names[place] != "<unk>":
                found["valid" if place < test else "test"].append((names[max(0, place - length) : place], names[place]))
    return counts, found


def decoded(sequences, split, length):
    tokens, targets, weights = sequences.histories(split, length)
    assert (weights.sum(1) == 1).all() and (tokens.dtype, targets.dtype, weights.dtype) == ("int32", "int32", "float32")
    rows = [sequences.vocabulary.decode(row[: last + 1]) for row, last in zip(tokens, weights.argmax(1), strict=True)]
    assert all((row[last + 1 :] == PAD).all() for row, last in zip(tokens, weights.argmax(1), strict=True))
    return list(zip(rows, sequences.vocabulary.decode(targets[weights > 0]), strict=True))


@pytest.mark.parametrize("split", ["leave_one_out", (FIRST, SECOND)])
def test_histories_and_targets(split):
    counts, found = expected(split, 4)
    sequences = item_sequences(TABLE, split=split)
    words = sequences.vocabulary.words[4:]
    assert Counter(dict(zip(words, sequences.vocabulary.counts[4:].tolist(), strict=True))) == counts
    assert [counts[word] for word in words] == sorted(counts.values(), reverse=True)
    for name in ("valid", "test"):
        assert decoded(sequences, name, 4) == found[name]
        users, positions = sequences.targets(name)
        of_user = np.searchsorted(sequences.offsets, positions, side="right") - 1
        np.testing.assert_array_equal(users, of_user)
        assert sequences.summary[name]["targets"] == len(found[name])
    assert sequences.summary["test"]["unseen"] > 0  # else the data shows nothing


def test_an_earlier_vocabulary_keeps_its_ids():
    """Targets that it lacks have no weight in training either."""
    earlier = item_sequences({name: column[:300] for name, column in TABLE.items()}, split=None).vocabulary
    sequences = item_sequences(TABLE, vocabulary=earlier)
    assert sequences.vocabulary is earlier and UNK in sequences.items
    everything = item_sequences(TABLE, split=None)
    for user in range(len(sequences.users)):
        clicks = slice(*sequences.offsets[user : user + 2])
        names = everything.vocabulary.decode(everything.items[clicks])
        known = sequences.items[clicks] != UNK
        assert (sequences.items[clicks] == earlier.encode(names))[known].all()
    batches = sequences.batches(6, 8, seed=1)
    rows = [batches[index] for index in range(len(batches))]
    assert all((weights[targets == UNK] == 0).all() for _, targets, weights in rows)
    assert sum(weights.sum() for *_, weights in rows) == batches.batches.tokens_per_epoch


TABLES = {
    "lists": {"user": USERS.tolist(), "item": NAMES[ITEMS].tolist(), "time": TIMES.tolist()},
    "tuples": {"user": USERS, "item": [(name, 1) for name in NAMES[ITEMS].tolist()], "time": TIMES},
    "strings": {"user": USERS.astype(str), "item": NAMES[ITEMS].astype(object), "time": DATES.astype(str)},
    "numbers": {"user": USERS.astype("int16"), "item": ITEMS.astype("uint64") * 10**12, "time": TIMES / 7},
    "arrow": pa.table({"user": USERS.astype(str), "item": NAMES[ITEMS], "time": DATES.astype("datetime64[ms]")}),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table(kind):
    sequences, table = item_sequences(TABLES[kind]), TABLES[kind]
    columns = [table[name].to_pylist() if kind == "arrow" else list(table[name]) for name in ("user", "item", "time")]
    columns[1] = [item.item() if isinstance(item, np.generic) else item for item in columns[1]]
    _, found = expected("leave_one_out", 5, *columns)
    assert decoded(sequences, "test", 5) == found["test"]


def test_several_chunks_of_arrow_share_their_values():
    halves = [pa.table({"user": USERS[half], "item": NAMES[ITEMS[half]]}) for half in (slice(400), slice(400, None))]
    whole = item_sequences(pa.concat_tables(halves), time=None)
    same = item_sequences({"user": USERS, "item": NAMES[ITEMS]}, time=None)
    np.testing.assert_array_equal(whole.items, same.items)
    assert whole.users == same.users and whole.vocabulary.words == same.vocabulary.words


def test_times_are_dates_or_numbers_or_shares():
    whole = item_sequences(TABLE, split=(FIRST, SECOND))
    border = [str(DATES.min() - TIMES.min() + time) for time in (FIRST, SECOND)]
    for times in (DATES, DATES.astype(str), DATES.astype(object), np.char.add(DATES.astype(str), "T00:00:00+00:00")):
        dated = item_sequences({**TABLE, "time": times}, split=tuple(border))
        np.testing.assert_array_equal(dated.starts, whole.starts)
    shared = item_sequences({**TABLE, "time": np.arange(900)}, split=(0.2, 0.1))
    clicks = shared.offsets[1:].sum() - shared.starts.sum(1)
    assert clicks.tolist() == [270, 90]
    everything = item_sequences(TABLE, split=None)
    assert everything.summary["train_clicks"] == 900 and everything.summary["test"]["targets"] == 0
    refused(everything.histories, "test", 5, match="'test' has no targets")


def test_a_file_is_the_table_in_it(tmp_path):
    table = pa.table({"who": USERS, "what": NAMES[ITEMS], "when": DATES, "more": TIMES})
    pa.csv.write_csv(table, tmp_path / "log.csv")
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    names = {"user": "who", "item": "what", "time": "when"}
    expected = item_sequences(table, **names)
    for path in ("log.csv", "log.parquet"):
        sequences = item_sequences(tmp_path / path, **names)
        np.testing.assert_array_equal(sequences.items, expected.items)
        assert sequences.users == expected.users
        refused(item_sequences, tmp_path / path, **{**names, "item": "whit"}, match="with the columns who, whit, when")
    refused(item_sequences, tmp_path / "log.txt", match="named .csv or .parquet")
    refused(item_sequences, tmp_path / "none.csv", match="none.csv", error=OSError)


def test_files_need_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    refused(item_sequences, "log.csv", match=r"keras_adaptive\[tables\]", error=ModuleNotFoundError)


WRONG = {
    "None": ({"item": ["a", None, "b"]}, "'item' must have a value in every row.* Received: None"),
    "NaN": ({"user": [1.0, float("nan"), 2.0]}, "'user' must have a value in every row.* Received: nan"),
    "NaN in an array": ({"user": np.array([1, np.nan, 2])}, "'user' must have a value"),
    "NaN of pandas": ({"item": np.array(["a", np.nan, "b"], object)}, "'item' must have a value"),
    "null": ({"item": pa.array(["a", None, "b"])}, "'item' must have a value"),
    "empty": ({"item": ["a", "", "b"]}, "'item' must have a value in every row.* Received: ''"),
    "types": ({"item": ["5", 5, "6"]}, "one type.* Received: int and str"),
    "types of times": ({"time": ["5", 5, "6"]}, "one type"),
    "no time": ({"time": ["soon", "now", "then"]}, "numbers or dates .*Received: 'soon'"),
    "NaT": ({"time": np.array(["2026-01-01", "NaT", "2026-01-02"], "datetime64[D]")}, "'time' must have a value"),
    "infinite": ({"time": [1.0, np.inf, 2.0]}, "'time' must have a value"),
    "lengths": ({"item": ["a", "b"]}, "same number of rows.* 'item': 2"),
    "no rows": ({"user": [], "item": [], "time": []}, "at least 1"),
    "dimensions": ({"item": np.ones((3, 2))}, "one dimension"),
    "special": ({"item": ["a", "<unk>", "b"]}, "must not hold .*<unk>"),
    "unhashable": ({"item": [["a"], ["b"], ["c"]]}, "hashable"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_columns_are_refused(case):
    changed, match = WRONG[case]
    refused(item_sequences, {"user": [1, 1, 1], "item": list("abc"), "time": [1, 2, 3], **changed}, match=match)


def test_wrong_arguments_are_refused():
    refused(item_sequences, TABLE, item="what", match="a column 'what'. Received: .* user, item, time")
    for split in ("leave-one-out", (1, 2, 3), ("2026-01-01", "2026-02-01"), 5, (0.5, None)):
        refused(item_sequences, TABLE, split=split, match="`split` must be 'leave_one_out', None, or a pair")
    refused(item_sequences, {**TABLE, "time": DATES}, split=("soon", "later"), match="`split` must be")
    refused(item_sequences, TABLE, split=(9, 3), match="must begin before")
    refused(item_sequences, TABLE, split=(0.6, 0.5), match="add up to less than 1")
    refused(item_sequences, TABLE, split=(-5, 3), match="clicks before -5 for training")
    sequences = item_sequences(TABLE)
    refused(sequences.histories, "train", 5, match="`split` must be one of")
    refused(sequences.histories, "test", 0, match="`length` must be at least 1")
    refused(sequences.batches, 5, 0, seed=1, match="`batch_size` must be at least 1")
    refused(sequences.batches, 5, 2, seed=1, start=-1, match="`start`")
    alone = item_sequences({"user": [1, 2], "item": [5, 5], "time": [1, 1]})
    assert alone.summary["users_without_targets"] == 2
    refused(alone.batches, 5, 2, seed=1, match="two items")


def test_a_row_of_training_has_the_last_clicks_of_a_user():
    sequences, length = item_sequences(TABLE, split=(FIRST, SECOND)), 6
    rows = set()
    for clicks in histories(USERS, ITEMS, TIMES).values():
        ids = sequences.vocabulary.encode([item for time, item in clicks if time < FIRST][-length - 1 :]).tolist()
        rows |= {(tuple(ids[:-1]), tuple(ids[1:]))} if len(ids) > 1 else set()
    batches = sequences.batches(length, 8, seed=1)
    read = []
    for tokens, targets, weights in map(batches.__getitem__, range(len(batches))):
        assert tokens.shape == targets.shape == weights.shape == (8, length)
        assert UNK not in tokens and (tokens[weights == 0] == PAD).all()
        sizes = weights.astype(int).sum(1)
        assert (weights == (np.arange(length) < sizes[:, None])).all()
        read += [(tuple(t[:n]), tuple(y[:n])) for t, y, n in zip(tokens.tolist(), targets.tolist(), sizes) if n]
    assert (
        set(read) == rows
        and len(read) == len({user for user in USERS.tolist()}) - (sequences.summary["users_without_targets"])
    )
    assert batches.batches.tokens_per_epoch == sum(len(row) for row, _ in read)


def test_training_continues_with_the_next_batch():
    sequences = item_sequences(TABLE)
    batches, other = (sequences.batches(5, 16, seed=seed) for seed in (1, 2))
    per_epoch, done = len(batches), len(batches) + 2
    everything = [batches.batches.batch(update) for update in range(3 * per_epoch)]
    again = sequences.batches(5, 16, seed=1, start=done)
    for epoch in range(2):
        again.on_epoch_begin()
        for index in range(per_epoch):
            update = done + epoch * per_epoch + index
            if update < len(everything):
                np.testing.assert_array_equal(again[index], everything[update])
    assert (everything[0][0] != everything[per_epoch][0]).any() and (everything[0][0] != other[0][0]).any()


@pytest.mark.parametrize("users", [USERS, USERS.astype(str)])
def test_files_hold_everything_and_damage_is_noticed(users, tmp_path):
    sequences = item_sequences({**TABLE, "user": users, "item": NAMES[ITEMS]})
    sequences.save(tmp_path / "kept")
    loaded = ItemSequences.load(tmp_path / "kept")
    for name in ("items", "offsets", "starts"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(sequences, name))
    assert loaded.users == sequences.users and loaded.vocabulary.words == sequences.vocabulary.words
    assert repr(loaded) == repr(sequences)
    refused(sequences.save, tmp_path / "kept", match="not empty", error=OSError)
    for name in ("vocabulary.txt", "clicks.npz"):
        path = tmp_path / "kept" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] + b"9" + whole[-8:])
        refused(ItemSequences.load, tmp_path / "kept", match=f"{name} has changed")
        path.write_bytes(whole)
    facts = tmp_path / "kept" / "sequences.json"
    facts.write_text("{}")
    refused(ItemSequences.load, tmp_path / "kept", match="is not the description")
    facts.unlink()
    refused(ItemSequences.load, tmp_path / "kept", match="sequences.json is missing")
    pairs = item_sequences({"user": [(1, 2), (1, 2)], "item": [1, 2], "time": [1, 2]})
    refused(pairs.save, tmp_path / "pairs", match="users that are strings or numbers")
