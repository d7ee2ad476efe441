"""Archives of a tiny public corpus."""

import io
import tarfile
import zipfile

from keras_adaptive.data import SPLITS

TEXTS = {"train": b" = a = \n\nthe cat <unk>\nthe dog\n", "valid": b"the dog\n\n", "test": b"a cat\n"}
MEMBERS = {split: (f"wiki.{split}.tokens",) for split in SPLITS}
NAMED = {f"wikitext-tiny/wiki.{split}.tokens": text for split, text in TEXTS.items()}
TOKENS = {"train": {"tokens": 12}, "valid": {"tokens": 4}, "test": {"tokens": 3}}


def zipped(members, compression=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return file.getvalue()


def tarred(members, mode="w:gz"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return file.getvalue()


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def read(folder):
    return {path.stem: path.read_bytes() for path in folder.iterdir()}
