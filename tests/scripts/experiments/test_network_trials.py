import keras
import pytest

from scripts.experiments import hosts, network_trials
from scripts.experiments.fault_injection import newest
from tests.support.programs import parsed
from tests.support.refusals import refused

pytestmark = [pytest.mark.once, pytest.mark.processes]
REASON = hosts.missing()


@pytest.fixture
def short(monkeypatch):
    """Shrinks the recipe to two bands and no micro-batches, and the cut to a moment."""
    monkeypatch.setattr(network_trials, "MODEL", network_trials.MODEL.replace("--cutoffs=100,400", "--cutoffs=100"))
    monkeypatch.setattr(network_trials, "TRAINING", network_trials.TRAINING.replace("--micro_batches=2", ""))
    monkeypatch.setattr(network_trials, "CUT", 0.3)
    kinds = [f"--kind={kind}" for kind in ("slow", "cut", "killed")]
    with parsed(network_trials, "--each=1", *kinds, "--updates_of_trial=4", "--save_every=3", "--timeout=120"):
        yield


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_a_disturbed_training_ends_as_an_undisturbed_one(tmp_path, short, capsys, forks):
    """Trains twice on two hosts, with a slow wire, a cut, a kill and a resumed training the second time."""
    with hosts.Network(2) as network:
        rows, different = network_trials.inject(keras.config.backend(), network, tmp_path)
    assert different == []
    slow, cut, killed = rows
    assert slow["statuses"] is cut["statuses"] is None and cut["seconds"] >= network_trials.CUT
    assert killed["statuses"][killed["host"]] == -9 and 75 in killed["statuses"]
    assert killed["after update"] - 3 <= killed["resumed from"] <= newest(tmp_path / "disturbed")[0] == 16
    network_trials.report(rows, different)
    assert "identical, bit for bit" in capsys.readouterr().out


def test_hosts_that_cannot_be_made_are_refused(monkeypatch):
    monkeypatch.setattr(hosts.shutil, "which", lambda name: None)
    refused(network_trials, match="The program `ip` and the device /dev/net/tun are needed")
