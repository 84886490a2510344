"""Brokers in processes of their own, around a controller in this one.

    this process                       nursery (one, Python and all modules loaded)
    BrokerProcess --a socket's end-->    forks a child for each broker, which takes the socket's end
         |
         +------ settings, then the child's lifetime ------>  Broker  --registration, requests, the metadata log-->  ControllerServer

A child lives as long as its socket: when this process dies, however it dies, the child reads the end and stops; when the child dies, this
process does. SIGTERM stops a child cleanly. Children have a session of their own, so that Ctrl+C in a terminal reaches only the parent,
which then stops them in order. Children are forked by a process that has no threads, since forking this one would copy its locks; and a
fork takes milliseconds where a new interpreter with everything imported takes a third of a second.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kafkacore.broker.controller.remote import ControllerAddress
from kafkacore.broker.server import CONTROLLED_SHUTDOWN_MAX_MS, Broker
from kafkacore.config import BrokerConfig
from kafkacore.errors import BrokerNotAvailable, KafkaError, KafkaTimeoutError, UsageError

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = CONTROLLED_SHUTDOWN_MAX_MS / 1000 + 5
BIRTH_TIMEOUT_S = 30
_CONTROL = 0  # the nursery's end of its socket
_STREAMS = (1, 2)


class Nursery:
    """Forks children on demand. All brokers of a process share one; it ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = -1

    def bear(self) -> tuple[int, socket.socket]:
        """A child that waits for its settings.

        Returns:
            Its process id, and the socket that is its life.

        Raises:
            BrokerNotAvailable: no process could be made.
        """
        with self._lock:
            for _ in range(2):  # the nursery may have been killed: once more with a new one
                if self._control is None or self._owner_pid != os.getpid():
                    self._begin()
                assert self._control is not None
                ours, theirs = socket.socketpair()
                try:
                    socket.send_fds(self._control, [b"b"], [theirs.fileno(), *_STREAMS])
                    ours.settimeout(BIRTH_TIMEOUT_S)
                    theirs.close()
                    return int(_read_line(ours)), ours
                except (OSError, EOFError):
                    ours.close()
                    theirs.close()
                    self._end()
        raise BrokerNotAvailable("no process for a broker could be made; what it says is on stderr")

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        # The package may have been found by the working directory or by a changed sys.path, which a new interpreter would not have.
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)
        # Libraries with threads of their own must not have them when children are forked.
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-c", "from kafkacore.broker.processes import nurse; nurse()"]
        self._process = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True, env=environment)
        theirs.close()
        self._control, self._owner_pid = ours, os.getpid()

    def _end(self) -> None:
        control, process, self._control, self._process = self._control, self._process, None, None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Ends the nursery; the next child makes a new one."""
        with self._lock:
            if self._owner_pid == os.getpid():
                self._end()


_nursery = Nursery()
atexit.register(_nursery.close)


class BrokerProcess:
    """One broker in a child process."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        controller: ControllerAddress | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        log_dirs: Sequence[str | os.PathLike[str]] | None = None,
        api_versions: Mapping[int, tuple[int, int]],
    ) -> None:
        """Prepares a broker; `start` makes the process.

        Args:
            config: settings.
            node_id: its id in the cluster.
            controller: where it registers; may be set until `start`.
            host, port: where it listens; 0 lets the system choose, and who knows the choice may set `port`.
            log_dirs: directories for the logs; None keeps them in the child's memory, gone with it.
            api_versions: what it advertises.
        """
        self.config = config
        self.node_id = node_id
        self.controller = controller
        self.host = host
        self.port = port
        self.pid: int | None = None
        self._log_dirs = None if log_dirs is None else [os.fspath(path) for path in log_dirs]
        self._api_versions = dict(api_versions)
        self._life: socket.socket | None = None
        self._owner_pid = os.getpid()

    @property
    def address(self) -> str:
        """host:port for bootstrap_servers; the port is 0 until it is known."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return not self._ended(0)

    def _ended(self, timeout_s: float) -> bool:
        """Waits for the end of the process's life, which shows as the end of its socket."""
        life = self._life
        if life is None:
            return True
        with contextlib.suppress(ConnectionError):
            readable, _, _ = select.select([life], [], [], timeout_s)
            return bool(readable) and not life.recv(1, socket.MSG_PEEK)
        return True

    def start(self) -> BrokerProcess:
        """Starts the process; nothing happens if it runs. It serves when the controller has unfenced it.

        Raises:
            BrokerNotAvailable: no process could be made.
        """
        if self.running:
            return self
        if self.controller is None:
            raise UsageError(f"broker {self.node_id} does not know where its controller is")
        settings = {
            "node_id": self.node_id,
            "host": self.host,
            "port": self.port,
            "controller": list(self.controller),
            "log_dirs": self._log_dirs,
            "api_versions": [[key, low, high] for key, (low, high) in self._api_versions.items()],
            "config": asdict(self.config),
        }
        self._forget()
        self._owner_pid = os.getpid()
        self.pid, self._life = _nursery.bear()
        with contextlib.suppress(ConnectionError):  # it has died already, which `running` shows
            self._life.sendall(json.dumps(settings).encode() + b"\n")
        return self

    def stop(self, clean: bool = True) -> None:
        """Ends the process and waits for its end.

        Args:
            clean: by SIGTERM, so that others take over first and the logs are closed; else by SIGKILL.

        Raises:
            KafkaTimeoutError: it did not end; it has been killed.
        """
        if self._life is None or self._owner_pid != os.getpid():
            return
        if clean:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a suspended process would not notice
            if not self._ended(STOP_TIMEOUT_S):
                self._signal(signal.SIGKILL)
                self._forget()
                raise KafkaTimeoutError(f"the process of broker {self.node_id} did not end within {STOP_TIMEOUT_S} s and was killed")
        else:
            self._signal(signal.SIGKILL)
            self._ended(STOP_TIMEOUT_S)
        self._forget()

    def pause(self) -> None:
        """Suspends the process: its sockets stay, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.pid is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _forget(self) -> None:
        life, self._life, self.pid = self._life, None, None
        if life is not None:
            life.close()


# ---- in the children


def _read_line(life: socket.socket) -> bytes:
    """A line, byte by byte, so that nothing behind it is taken."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = life.recv(1)
        if not byte:
            raise EOFError("the other process is gone")
        line += byte
    return bytes(line)


def nurse() -> None:
    """The nursery's process: forks a child for every socket it is sent, until the end of its own."""
    control = socket.socket(fileno=_CONTROL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here asks how a child ended
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1 + len(_STREAMS))
        if not message:
            return
        if os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        life, *streams = descriptors
        for descriptor, stream in zip(streams, _STREAMS, strict=True):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        status = 1
        try:
            status = _live(socket.socket(fileno=life))
        except BaseException:
            logger.exception("a broker's process failed")
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)  # not the nursery's way out


def _live(life: socket.socket) -> int:
    """A broker's process, from its settings to its end. Returns the exit status."""
    # Not an Event: a signal that comes while this thread is inside Event.wait would find the Event's lock held, by itself.
    end, ring = os.pipe()
    orphaned = threading.Event()

    def stop(*_: Any) -> None:
        os.write(ring, b"e")

    signal.signal(signal.SIGTERM, stop)
    life.sendall(b"%d\n" % os.getpid())
    try:
        settings = json.loads(_read_line(life))
    except (EOFError, ConnectionError):
        return 0

    def watch_parent() -> None:
        with contextlib.suppress(OSError):
            while life.recv(1):
                pass
        orphaned.set()
        stop()

    threading.Thread(target=watch_parent, name="kafkacore-parent", daemon=True).start()
    host, port, cluster_id = settings["controller"]
    try:
        broker = Broker(
            BrokerConfig(**settings["config"]),
            settings["node_id"],
            ControllerAddress(host, port, cluster_id),
            host=settings["host"],
            port=settings["port"],
            log_dirs=settings["log_dirs"],
            api_versions={key: (low, high) for key, low, high in settings["api_versions"]},
        )
        broker.start()
    except (KafkaError, OSError) as error:
        sys.stderr.write(f"broker {settings['node_id']} cannot start: {error}\n")
        return 1

    def watch_broker() -> None:
        broker.serve_forever()
        stop()

    threading.Thread(target=watch_broker, name="kafkacore-end", daemon=True).start()
    os.read(end, 1)
    try:
        if orphaned.is_set():
            broker.call(broker.state.controller.close)  # it is gone with the parent, so there is nobody to hand over to
        broker.stop()
    except KafkaError as error:
        sys.stderr.write(f"broker {settings['node_id']}: {error}\n")
        return 1
    return 0
