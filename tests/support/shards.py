"""Damage of the files of a corpus."""

import os

DAMAGES = {"missing": "is missing", "short": "bytes. Received:", "changed": "has changed since it was made"}  # messages


def damage(path, how):
    if how == "missing":
        path.unlink()
    elif how == "short":
        os.truncate(path, path.stat().st_size - 2)
    else:
        content = path.read_bytes()
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
