"""Trains on two hosts whose network and processes fail, and compares the result with an undisturbed training.

    python -m scripts.experiments.network_trials --backends=torch,torchrun,jax,tensorflow --each=5

The hosts are namespaces of `scripts.experiments.hosts`, with a process of trainers.train each. With `torchrun`,
PyTorch's launcher starts the processes, and starts all of them again after one was lost. A trial is one of:

- slow: the wire delays packets by 5 ms and loses 1 % of them; training continues.
- cut: no packet passes for 5 seconds; training continues, or ends as after a loss where heartbeats are missed.
- killed: `kill -9` ends the process of a host, whose kernel closes its connections.
- gone: a host vanishes without a word, and comes back after all processes have ended.
- full: host 0 cannot write a checkpoint, as on a full disk.

After a loss, every process must end within --timeout and some seconds, with a status that makes a scheduler
run the same command again: 1 where the disk is full, and from torchrun, which waits for the host as long again. The
same commands then resume. At the end the weights, the optimizer, the seeds of dropout and the log (except for times)
must be bit-identical.
"""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from absl import flags

from scripts.benchmarks import common
from scripts.experiments import fault_injection
from scripts.experiments.fault_injection import MODEL, TRAINING, last_update, newest, prepare_text
from scripts.experiments.hosts import Network, missing
from trainers.support import command_line
from trainers.support.tables import aligned

FLAGS = flags.FLAGS
STRATEGIES = {"torch": "ddp", "torchrun": "ddp", "jax": "data_parallel", "tensorflow": "multiworker"}
PORT = 9000
DELAY, LOSS, CUT = 0.005, 0.01, 5.0  # seconds, share of the packets, seconds
SMALL = 2**15  # bytes, less than a checkpoint and more than a line on stderr
ENDS = 20  # seconds that a process may take to end after it has noticed a loss
# Statuses of processes after a host was lost (JAX aborts where its coordinator is gone), and after its disk was full.
LOST, FULL = {75, -signal.SIGKILL, -signal.SIGABRT}, {1, 75}
PATIENCE = 300  # largest number of seconds for an update, including the start of processes and compilation
PAUSE = 5  # seconds without this program from which on the machine was not its own, and --timeout proves nothing
NOTICE = re.compile(r"I\d{4} |WARNING: All log messages before|Extension modules: ")  # of Abseil and faulthandler
KINDS = ("slow", "cut", "killed", "gone", "full")


def define_flags():
    flags.DEFINE_list("backends", list(STRATEGIES), "Backends to test.")
    flags.DEFINE_integer("each", 5, "Number of trials of each kind.", 1)
    flags.DEFINE_multi_enum("kind", list(KINDS), KINDS, "Kinds of trials; by default all.")
    flags.DEFINE_integer("updates_of_trial", 20, "Number of updates between two trials.", 1)
    flags.DEFINE_integer("save_every", 7, "Number of updates between two checkpoints.", 1)
    flags.DEFINE_integer("timeout", 60, "--timeout of the trainings in seconds.", 1)
    command_line.define_path("results", None, "JSON file to write. It needs a clean working tree.")


class Ended(RuntimeError):
    """The processes of a training ended, or did nothing for long."""


class Hosts:
    """The processes of a training, one on each host of a network. Their errors are written to files."""

    def __init__(self, backend, network, corpus, run_dir):
        self.backend, self.network, self.run_dir, self.processes = backend, network, run_dir, []
        updates = FLAGS.updates_of_trial * (FLAGS.each * len(FLAGS.kind) + 1)
        numbers = {"updates": updates, "evaluate_every": updates // 2, "save_every": FLAGS.save_every}
        numbers["timeout"] = FLAGS.timeout
        self.arguments = [
            *(f"--{name}={value}" for name, value in {**numbers, "data_dir": corpus, "run_dir": run_dir}.items()),
            *(*MODEL.split(), *TRAINING.split(), f"--strategy={STRATEGIES[backend]}"),
        ]

    def start(self):
        self.paused = False  # whether the machine has paused this program, and thereby the training
        self.processes = [self._start(host) for host in range(len(self.network.addresses))]

    def _start(self, host):
        environment = environment_of(self.backend, self.network.addresses, host)
        own = {"KERAS_BACKEND": self.backend.removesuffix("run"), "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
        python_path = os.pathsep.join([str(common.ROOT), os.environ.get("PYTHONPATH", "")])
        with open(self._errors(host), "w") as errors:
            return subprocess.Popen(
                self.network.command(host, *launcher(self.backend, self.network.addresses), *self.arguments),
                env={**os.environ, **own, "PYTHONPATH": python_path, **environment},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def _errors(self, host):
        return self.run_dir.with_name(f"{self.run_dir.name}_{host}.txt")

    def errors(self):
        """Returns the last line that each process wrote to stderr, notices of the backend excluded."""
        lines = [path.read_text().strip().splitlines() for path in map(self._errors, self._hosts())]
        return [([line for line in own if not NOTICE.match(line)] or [""])[-1] for own in lines]

    def _hosts(self):
        return range(len(self.processes))

    def wait_for(self, update):
        """Waits until the log has an update. Raises `Ended` if a process ends before, unless the machine was paused."""
        end = time.monotonic() + PATIENCE
        while last_update(self.run_dir) < update:
            if any(self.statuses()) or time.monotonic() > end:
                ended = self.wait(FLAGS.timeout + ENDS)
                if not self.paused or set(ended) != {75}:
                    raise Ended(f"Update {update} was not reached: {ended} {self.errors()}")
                self.start()
                end = time.monotonic() + PATIENCE
            asleep = time.monotonic()
            time.sleep(0.05)
            self.paused |= time.monotonic() > asleep + PAUSE

    def statuses(self):
        return [process.poll() for process in self.processes]

    def trainer(self, host):
        """Returns the id of the process that trains on a host: the child of torchrun, if that has started it."""
        started = self.processes[host].pid
        if not self.relaunched:
            return started
        return next(process for process in self.network.processes(host) if process != started)

    @property
    def relaunched(self):
        """Whether the launcher starts lost processes again."""
        return self.backend == "torchrun"

    def wait(self, seconds):
        """Waits for the end of all processes, and returns their statuses; None for those that run after `seconds`."""
        end = time.monotonic() + seconds
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(end - time.monotonic(), 0))
        return self.statuses()


def launcher(backend, addresses):
    """Returns the module that the process of a host runs, and its first arguments."""
    if backend != "torchrun":
        return ["trainers.train"]
    given = {"nnodes": len(addresses), "nproc-per-node": 1, "max-restarts": 100, "rdzv-backend": "c10d"}
    given |= {"rdzv-endpoint": f"{addresses[0]}:{PORT}", "rdzv-conf": f"join_timeout={FLAGS.timeout}"}
    return ["torch.distributed.run", *(f"--{name}={value}" for name, value in given.items()), "-m", "trainers.train"]


def environment_of(backend, addresses, host):
    """Returns the environment variables by which the process of a host finds the others."""
    if backend == "torchrun":
        return {}
    if backend == "tensorflow":
        workers = [f"{address}:{PORT}" for address in addresses]
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": host}})}
    if backend == "jax":
        known = {"JOB_ADDRESSES": f"{addresses[0]}:{PORT}", "NUM_PROCESSES": len(addresses), "PROCESS_ID": host}
        return {f"KERAS_DISTRIBUTION_{name}": str(value) for name, value in known.items()}
    known = {"RANK": host, "LOCAL_RANK": 0, "WORLD_SIZE": len(addresses), "MASTER_PORT": PORT}
    return {"MASTER_ADDR": addresses[0], **{name: str(value) for name, value in known.items()}}


def trial(hosts, kind, host, at):
    """Disturbs a training that has reached the update `at`, and returns a row of the table."""
    network, resumed, statuses, errors = hosts.network, None, None, None
    hosts.wait_for(at)
    begun = time.monotonic()
    if kind in ("slow", "cut"):
        with disturbed(network, kind, host):
            if kind == "cut":
                time.sleep(CUT)
                lost_until = last_update(hosts.run_dir) + 2
            else:
                hosts.wait_for(at + FLAGS.updates_of_trial // 2)
        if kind == "cut":
            try:
                hosts.wait_for(lost_until)
            except Ended:
                statuses, errors = hosts.statuses(), hosts.errors()
    else:
        end(hosts, kind, host)
        if hosts.relaunched and kind != "gone":
            resumed = newest(hosts.run_dir)[0]
            hosts.wait_for(last_update(hosts.run_dir) + FLAGS.save_every + 2)  # after a checkpoint
        else:
            seconds = FLAGS.timeout * (1 + hosts.relaunched) + ENDS
            statuses, errors = hosts.wait(seconds), hosts.errors()
    seconds = time.monotonic() - begun
    if statuses:
        allowed = FULL if kind == "full" else LOST | {1} if hosts.relaunched else LOST
        if not set(statuses) <= allowed:
            raise RuntimeError(f"After {kind}, statuses must be among {sorted(allowed)}: {statuses} {errors}")
        network.cut.clear()
        resumed = newest(hosts.run_dir)[0]
        hosts.start()
    row = {"kind": kind, "host": host, "after update": at, "resumed from": resumed, "seconds": round(seconds, 1)}
    return {**row, "statuses": statuses, "errors": errors}


@contextlib.contextmanager
def disturbed(network, kind, host):
    """Makes the wire slow, or cuts the host off."""
    if kind == "cut":
        network.cut.add(host)
    else:
        network.delay, network.loss = DELAY, LOSS
    try:
        yield
    finally:
        network.cut.clear()
        network.delay = network.loss = 0


def end(hosts, kind, host):
    """Ends the process of a host in one of three ways."""
    if kind == "full":
        return resource.prlimit(hosts.trainer(0), resource.RLIMIT_FSIZE, (SMALL, SMALL))
    if kind == "gone":
        hosts.network.cut.add(host)  # so that its kernel cannot close its connections
        hosts.network.kill(host)
    else:
        os.kill(hosts.trainer(host), signal.SIGKILL)


def kinds_in_turn(backend):
    """Yields the kind and the host of every trial. The hosts take turns; torchrun would wait for host 0 as TCP does."""
    for number in range(FLAGS.each):
        for place, kind in enumerate(FLAGS.kind):
            yield kind, 1 if kind == "gone" and backend == "torchrun" else (number + place) % 2


def inject(backend, network, folder):
    """Returns a row per trial, and the differences between the disturbed and an undisturbed training."""
    corpus = prepare_text(folder)
    whole, hosts = (Hosts(backend, network, corpus, folder / name) for name in ("whole", "disturbed"))
    whole.start()
    if any(whole.wait(PATIENCE)):
        raise RuntimeError(f"Training failed: {whole.statuses()} {whole.errors()}")
    rows = []
    hosts.start()
    for number, (kind, host) in enumerate(kinds_in_turn(backend), 1):
        rows.append(trial(hosts, kind, host, number * FLAGS.updates_of_trial))
        print(json.dumps(rows[-1]), flush=True)
    if any(hosts.wait(PATIENCE)):
        raise RuntimeError(f"Training did not resume: {hosts.statuses()} {hosts.errors()}")
    return rows, fault_injection.differences(whole.run_dir, hosts.run_dir)


def report(rows, different):
    """Prints the number of trials of each kind and the longest, and whether the ends differ."""
    kinds = {kind: [row["seconds"] for row in rows if row["kind"] == kind] for kind in FLAGS.kind}
    cells = [[kind, len(seconds), max(seconds)] for kind, seconds in kinds.items()]
    print(*aligned([["trial", "number", "longest, s"], *cells]), sep="\n")
    print(
        "The ends " + (f"differ in {', '.join(different)}" if different else "are identical, bit for bit"), flush=True
    )


def main():
    results = {}
    if reason := missing():
        raise ValueError(reason)
    for backend in FLAGS.backends:
        print(f"\n{backend}", flush=True)
        with tempfile.TemporaryDirectory() as folder, Network(2) as network:
            rows, different = inject(backend, network, Path(folder))
        report(rows, different)
        results[backend] = {"differences": different, "rows": rows}
    common.save(("each", "updates_of_trial", "save_every", "timeout"), backends=results)
    if any(result["differences"] for result in results.values()):
        raise ValueError("A disturbed training differs from the undisturbed one, see above.")


if __name__ == "__main__":
    common.run(main, define_flags)
