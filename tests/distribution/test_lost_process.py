"""Trainings in several processes after one of them was lost, and the commands for Slurm."""

import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from keras_adaptive import distribution
from scripts.benchmarks.virtual_devices import environments
from tests.support.backends import BACKEND
from tests.support.programs import ROOT, run
from tests.support.text import prepared, write_zipf
from trainers import train

pytestmark = pytest.mark.once

LOST = [
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:5548: Connection reset by peer.",
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1",
    "Timed out waiting 1800000ms for recv operation to complete",
    "NCCL communicator was aborted on rank 0.",
    "Collective ops is aborted by: Error reported from /job:worker/task:1: The following tasks are unhealthy (stopped\n"
    "sending heartbeats):\n/job:worker/replica:0/task:1\nThe tasks have crashed.",
    "Socket closed",
    "NCCL error in: ../ProcessGroupNCCL.cpp:77, remote process exited or there was a network error",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600000 ms",
]
OTHERS = [
    RuntimeError("mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)"),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError(
        "NCCL error in: ../ProcessGroupNCCL.cpp:77, invalid usage, NCCL version 2.21.5\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
    ),
    RuntimeError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
    RuntimeError("[enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] Unable to resolve hostname"),
    RuntimeError("No backend type associated with device type cpu under gloo"),
    ValueError("Connection reset by peer"),
    OSError("Connection reset by peer"),
    FloatingPointError("Collective ops is aborted"),
]


@pytest.mark.parametrize("message", LOST)
def test_a_lost_process_is_one_line_and_a_status_of_its_own(message, monkeypatch, capsys):
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended, train.all_processes(True):
        raise RuntimeError(message)
    assert ended.value.code == 75
    printed = capsys.readouterr().err
    assert printed.startswith("train: another process was lost (") and len(printed.splitlines()) == 1
    assert len(printed) < 350
    with pytest.raises(RuntimeError, match=re.escape(message)), train.all_processes(False):
        raise RuntimeError(message)


def test_a_lost_process_is_a_value_error_under_jax():
    message = "UNKNOWN: Gloo AllGather failed: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:1"
    assert distribution.lost_process(ValueError(message)) == "Connection closed by peer [10.0.0.2]:1"
    assert distribution.lost_process(ValueError("UNKNOWN: Gloo AllGather failed: a size is wrong")) is None


@pytest.mark.parametrize("strategy, expected", [("none", RuntimeError), ("ddp", SystemExit)])
def test_a_process_that_never_arrives_is_lost_too(strategy, expected, monkeypatch):
    def begin(*arguments):
        raise RuntimeError("Timed out after 1801 seconds waiting for clients. 1/2 clients joined.")

    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(distribution, "start", begin)
    monkeypatch.setattr(train, "FLAGS", SimpleNamespace(strategy=strategy, model_devices=0, timeout=9))
    with pytest.raises(expected):
        train.start()


@pytest.mark.skipif(BACKEND != "torch", reason="launches a process of torch")
@pytest.mark.processes
def test_a_process_whose_other_is_never_started(tmp_path):
    corpus = prepared(write_zipf(tmp_path, words=80, lengths=(61, 11, 3))).data_dir
    flags = [f"--data_dir={corpus}", f"--run_dir={tmp_path}/run", "--notensorboard", "--length=8"]
    done = run("-m", "trainers.train", *flags, "--strategy=ddp", "--timeout=3", **environments("torch", 2)[0])
    assert done.returncode == 75
    assert re.fullmatch("No batch ended for 3 seconds: another process hangs, .*\n", done.stderr)


LOSSES = {  # what happens to the second of two processes, the --timeout, and what the first says in the end
    "killed": (signal.SIGKILL, 300, r"train: another process was lost \(.*"),
    "stopped": (signal.SIGSTOP, 40, "No batch ended for 40 seconds: another process hangs, .*"),
}


@pytest.mark.skipif(BACKEND != "torch", reason="launches processes of torch")
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.processes
def test_a_process_whose_other_is(name, tmp_path):
    sent, timeout, message = LOSSES[name]
    corpus, log = prepared(write_zipf(tmp_path, words=80, lengths=(61, 11, 3))).data_dir, tmp_path / "run" / "log.jsonl"
    sizes = "--dim=8 --num_heads=1 --ffn_dim=8 --num_blocks=1 --cutoffs=20 --length=8 --batch_size=4 --log_every=1"
    training = f"--updates=1000000 --evaluate_every=1000000 --notensorboard --strategy=ddp --timeout={timeout}"
    paths = [f"--data_dir={corpus}", f"--run_dir={log.parent}"]
    command = [sys.executable, "-m", "trainers.train", *sizes.split(), *training.split(), *paths]
    output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    known = [{**os.environ, "PYTHONPATH": str(ROOT), **one} for one in environments("torch", 2)]
    first, second = (subprocess.Popen(command, env=environment, **output) for environment in known)
    try:
        until = time.monotonic() + 200
        while not (log.exists() and log.read_bytes().count(b"\n") > 2):
            assert first.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        second.send_signal(sent)
        errors = first.communicate(timeout=200)[1]
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    assert first.returncode == 75
    assert "Traceback" not in errors
    assert re.fullmatch(message, errors.splitlines()[-1])  # libraries that are imported may warn before


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_other_errors_stay_and_do_not_wait_for_the_other_processes(error, monkeypatch):
    at_exit = []
    monkeypatch.setattr(train.atexit, "register", at_exit.append)
    with pytest.raises(type(error), match=re.escape(str(error))), train.all_processes(True):
        raise error
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit, match="1"):
        at_exit[0]()


ENDS = [("0", 0), ("1", 0), ("2", 0), ("75", 1), ("130", 1), ("134", 1), ("137", 1), ("143", 1), ("1 75", 0)]


@pytest.mark.parametrize("statuses, again", [*ENDS, ("75 75", 1), ("1 137", 0)])
@pytest.mark.processes
def test_the_lines_for_slurm_run_the_same_command_again_where_it_may_succeed(tmp_path, statuses, again):
    """Runs the commands of the documentation with another `srun`, `scontrol` and `python`; a status per process."""
    (script,) = re.findall(
        r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", (ROOT / "docs" / "trust.md").read_text(), re.DOTALL
    )
    (tmp_path / "job.sh").write_text(script)
    fakes = {
        "srun": f'shift; [ "$MASTER_ADDR" = node1 ] || exit 99; for status in {statuses}; do STATUS=$status "$@"; '
        "ended=$?; [ $ended -gt ${worst:-0} ] && worst=$ended; done; exit ${worst:-0}",
        "python": "exit $STATUS",
        "scontrol": 'case "$1" in show) echo node1; echo node2;; requeue) echo "$2" >> requeued;; esac',
    }
    for name, text in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    done = subprocess.run(["bash", "job.sh"], cwd=tmp_path, env=environment, timeout=60)
    assert done.returncode == max(map(int, statuses.split()))
    assert (tmp_path / "requeued").exists() == bool(again)
