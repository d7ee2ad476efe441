"""Text for tests: lines that are hard to tokenize, and made-up words by Zipf's law."""

import numpy as np

from keras_adaptive.data import SPLITS, prepare

NASTY = [
    "",
    "the <unk> cat <s> and <pad> sat </s> on",
    "don't can't we'll I'd 'quoted' ''s 's ' '' ''' DON'T l'amour it’s",
    "x<unk> <unk>x <unk><unk> </s>. <S> < unk >",
    "1,000,000.50 3rd 2nd ½ ² Ⅷ १२३ ٣٤ 12345678901234567890",
    "naïve Ångström ÀÉ ß ſ İ ı ﬁ Ĵ ĴA Ġ Ċ Ā ĠĠ",
    "日本語 한국어 العربية עברית ไทย हिन्दी 😀 👩‍👩‍👧 🇩🇪 𝔘𝔫𝔦 \U0010ffff",
    "\x01\x1b\x7f \u200b\u200d \ufeff \ufffd \u0301e e\u0301 \u00ad",
    '... >>> ---- @-@ @,@ #hash $100 a@b.c http://x.y/z?q=1&r=2 \\n "quotes" (a[b]{c})',
    "aaaaaaaaaaaaaaaaaaaa abababababab " + "x" * 300,
]


def write_splits(folder, text, **others):
    """Writes train.txt, valid.txt and test.txt, a text each or another one by the name of a split; returns the folder.

    A text is a string or bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        content = others.get(split, text)
        (folder / f"{split}.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def prepared(folder, text=None, *, min_count=1, **how):
    """Returns the corpus `folder`/corpus of the splits of a folder, which are written if `text` is given."""
    if text is not None:
        write_splits(folder, text, **{split: how.pop(split) for split in SPLITS if split in how})
    return prepare(folder, folder / "corpus", min_count=min_count, **how)


def write_zipf(folder, words, lengths=(60, 12, 12), line=7, seed=1, held_out_seed=None):
    """Writes train.txt, valid.txt and test.txt with made-up words by Zipf's law, and returns the folder.

    Args:
        folder: Path, made unless it is there.
        words: number of different words, at most.
        lengths: lines of train.txt, valid.txt and test.txt.
        line: words of a line.
        seed: int.
        held_out_seed: another seed for valid.txt and test.txt.
    """
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(seed)
    for split, lines in zip(SPLITS, lengths, strict=True):
        if split == "valid" and held_out_seed is not None:
            random = np.random.default_rng(held_out_seed)
        ranks = random.zipf(1.3, (lines, line)) % words
        (folder / f"{split}.txt").write_text("\n".join(" ".join(f"w{rank}" for rank in row) for row in ranks) + "\n")
    return folder
