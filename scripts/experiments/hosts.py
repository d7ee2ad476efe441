"""Hosts on a network of their own: Linux namespaces, and a wire between them that delays, drops and cuts.

    python -m scripts.experiments.hosts NAMESPACE ADDRESS MODULE [ARGUMENTS]

runs a module in a namespace, whose name of the host is its address. `Network` makes the namespaces and such commands.
The wire is a thread that forwards the packets of the kernel's TCP, so that a lost packet is sent again and a cut
connection stays open, as between machines. It needs no `netem` in the kernel. Nothing reaches the network of the
machine, and everything ends with the processes that use it. It needs Linux, `ip` and root (`unshare --map-root-user
--net`).
"""

import ctypes
import errno
import fcntl
import heapq
import itertools
import os
import random
import runpy
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

CLONE_NEWNET, CLONE_NEWUTS = 0x40000000, 0x04000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
PACKET = 65536  # bytes; no packet is longer
DESTINATION = slice(16, 20)  # of the bytes of a packet of IPv4


class Network:
    """A number of hosts and the wire between them, as a context manager. At its end the hosts' processes are killed.

    Args:
        hosts: Number of hosts.
        seed: Seed of the packets that are lost.

    Attributes:
        addresses: Address of every host.
        delay: Seconds that a packet takes.
        loss: Share of the packets that are lost.
        cut: Set of the hosts whose packets are lost.
    """

    def __init__(self, hosts, seed=0):
        self.addresses = [f"10.77.0.{host + 1}" for host in range(hosts)]
        self.delay, self.loss, self.cut = 0.0, 0.0, set()
        self._random, self._open = random.Random(seed), True
        self._namespaces, self._devices = [], []

    def __enter__(self):
        maker = threading.Thread(target=self._make)  # a thread of its own, which alone enters the namespaces
        maker.start()
        maker.join()
        if len(self._devices) < len(self.addresses):
            raise OSError("The network of the hosts was not made, see above.")
        threading.Thread(target=self._carry, daemon=True).start()
        return self

    def __exit__(self, *exception):
        for host in range(len(self.addresses)):
            self.kill(host)
        self._open = False

    def command(self, host, module, *arguments):
        """Returns the command that runs a module of Python on a host."""
        namespace = f"/proc/{os.getpid()}/fd/{self._namespaces[host]}"
        return [sys.executable, "-m", "scripts.experiments.hosts", namespace, self.addresses[host], module, *arguments]

    def kill(self, host):
        """Kills all processes of a host."""
        for process in self.processes(host):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:  # it has just ended
                continue

    def processes(self, host):
        """Returns the ids of the processes that run on a host."""
        own, found = os.stat(self._namespaces[host]), []
        for path in Path("/proc").glob("[0-9]*/ns/net"):
            try:
                if os.path.samestat(own, path.stat()):
                    found.append(int(path.parts[2]))
            except OSError:  # it has just ended
                continue
        return found

    def _make(self):
        for address in self.addresses:
            _call("unshare", CLONE_NEWNET)
            self._namespaces.append(os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY))
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN | IFF_NO_PI))
            for words in (f"address add {address}/24 dev wire", "link set wire up", "link set lo up"):
                subprocess.run(["ip", *words.split()], check=True)
            self._devices.append(device)

    def _carry(self):
        """Forwards packets until the network ends."""
        hosts = {bytes(map(int, address.split("."))): host for host, address in enumerate(self.addresses)}
        waiting, count = [], itertools.count()
        while self._open:
            pause = max(waiting[0][0] - time.monotonic(), 0) if waiting else 0.1
            for device in select.select(self._devices, [], [], pause)[0]:
                packet = os.read(device, PACKET)
                receiver, ends = hosts.get(packet[DESTINATION]), {self._devices.index(device)}
                lost = receiver is None or (ends | {receiver}) & self.cut or self._random.random() < self.loss
                if not lost:
                    heapq.heappush(waiting, (time.monotonic() + self.delay, next(count), receiver, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                *_, receiver, packet = heapq.heappop(waiting)
                if receiver not in self.cut:
                    os.write(self._devices[receiver], packet)
        for file in (*self._devices, *self._namespaces):
            os.close(file)


def missing():
    """Returns why this system cannot make such hosts, or None if it can."""
    if not shutil.which("ip") or not os.path.exists("/dev/net/tun"):
        return "The program `ip` and the device /dev/net/tun are needed."
    reasons = []

    def attempt():
        try:
            _call("unshare", CLONE_NEWNET)
            os.close(os.open("/dev/net/tun", os.O_RDWR))
        except OSError as error:
            reasons.append(f"Namespaces are not allowed here ({error.strerror}): run as root.")

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return reasons[0] if reasons else None


def _call(name, *arguments):
    """Calls a function of the C library that returns 0, or raises its error."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, name):
        raise OSError(errno.ENOSYS, f"The system has no {name}")
    if getattr(library, name)(*arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(namespace, address, module, *arguments):
    entered = os.open(namespace, os.O_RDONLY)
    _call("setns", entered, CLONE_NEWNET)
    os.close(entered)
    _call("unshare", CLONE_NEWUTS)
    _call("sethostname", address.encode(), len(address))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
