"""Every result file names the clean commit that measured it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "scripts" / "results"
EXCEPTIONS = {"comparison/comparison.json": "Five hours of training, from before the comparison wrote its commit."}


def git(*arguments):
    """Returns what a git command prints in the project; nothing where git or the repository is missing."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def history():
    """Returns all commits up to this one; none outside of a clone with its whole history."""
    whole = git("rev-parse", "--is-shallow-repository") == "false"
    inside = Path(git("rev-parse", "--show-toplevel") or ".").resolve() == ROOT.resolve()
    return git("rev-list", "HEAD").split() if whole and inside else []


def wrong_commits(results, commits):
    """Returns `{file: its commit}` of the result files without a clean commit, or with one outside of the history."""
    wrong = {}
    for file in sorted(results.rglob("*.json")):
        machine = json.loads(file.read_text(encoding="utf-8")).get("machine") or {}
        commit = machine.get("commit", "")
        clean = re.fullmatch("[0-9a-f]{7,}", commit)
        if not clean or (commits and not any(one.startswith(commit) for one in commits)):
            wrong[file.relative_to(results).as_posix()] = commit
    return wrong


def test_results_come_from_clean_commits():
    """An exception that has been mended leaves the table."""
    in_history = {name: reason for name, reason in EXCEPTIONS.items() if "rewritten" not in reason}
    commits = history()
    assert set(wrong_commits(RESULTS, commits)) == set(EXCEPTIONS if commits else in_history)


def test_wrong_commits_are_named(tmp_path):
    commits = [40 * "a", "bc" * 20]
    for name, commit in {"a": "aaaaaaa", "b": "bcbcbcb-dirty", "c": "ddddddd", "d": "aaaaaa", "e": ""}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"machine": {"commit": commit}}))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "f.json").write_text("{}")
    always = {"b.json": "bcbcbcb-dirty", "d.json": "aaaaaa", "e.json": "", "more/f.json": ""}
    assert wrong_commits(tmp_path, commits) == {**always, "c.json": "ddddddd"}
    assert wrong_commits(tmp_path, []) == always
