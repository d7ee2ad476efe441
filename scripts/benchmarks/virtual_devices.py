"""Simulates several devices on a machine with one: virtual devices in a process, and local processes."""

import concurrent.futures
import contextlib
import json
import os
import random
import socket
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make_devices(number):
    """Creates virtual CPU devices in this process. It must be called before the backend starts."""
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={number}"
    import keras

    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * number)


def run_processes(environments, command):
    """Runs a command in a local process for each of `environments`, as the launchers of the backends do.

    Returns their outputs. If a process fails, the others, which would wait for it, are stopped.
    """
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for variables in environments
    ]
    with concurrent.futures.ThreadPoolExecutor(len(running)) as threads:
        output = {threads.submit(process.communicate, timeout=500): process for process in running}
        try:
            for ended in concurrent.futures.as_completed(output):
                if errors := ended.exception() or (output[ended].returncode and ended.result()[1]):
                    raise RuntimeError(f"{' '.join(command)} failed: {errors}")
        finally:
            for process in running:
                process.kill()
    return [ended.result()[0] for ended in output]


def environments(backend, processes):
    """Returns the environment variables by which local processes find each other, a list of dicts."""
    ports = free_ports(processes)
    addresses = [f"localhost:{port}" for port in ports]

    def environment(process):
        if backend == "tensorflow":
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": process}}
            return {"TF_CONFIG": json.dumps(config)}
        if backend == "jax":
            known = {"JOB_ADDRESSES": addresses[0], "NUM_PROCESSES": processes, "PROCESS_ID": process}
            return {f"KERAS_DISTRIBUTION_{name}": str(value) for name, value in known.items()}
        known = {"RANK": process, "LOCAL_RANK": process, "WORLD_SIZE": processes, "MASTER_PORT": ports[0]}
        return {"MASTER_ADDR": "localhost", **{name: str(value) for name, value in known.items()}}

    return [environment(process) for process in range(processes)]


def free_ports(number):
    """Returns free ports, below the ports that a system assigns to outgoing connections."""
    ports = []
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with socket.socket() as server, contextlib.suppress(OSError):
            server.bind(("localhost", port))
            ports.append(port)
        if len(ports) == number:
            return ports
    raise OSError(f"{number} free ports were not found from 20,000 to 30,000.")
