"""Brokers in processes of their own, around a controller in this one.

    this process                       nursery (one, Python and all modules loaded)
    BrokerProcess --a socket's end-->    forks a child for each broker, which takes the socket's end
         |
         +------ settings, then the child's lifetime ------>  Broker  --registration, requests, the metadata log-->  ControllerServer
         +------ the line: calls, control functions (`line.py`)

Settings hold passwords and the secret of the controller's port, so they go over that socket, where no other process can read them.

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
from typing import Any

from kafkacore.broker.cluster import FEATURES
from kafkacore.broker.controller.access import ControllerAddress
from kafkacore.broker.emulation import NEWEST
from kafkacore.broker.faults import Control
from kafkacore.broker.handlers import SERVED
from kafkacore.broker.limits import raise_descriptor_limit
from kafkacore.broker.line import ChildLine, Operation, ParentLine
from kafkacore.broker.server import CONTROLLED_SHUTDOWN_MAX_MS, STOP_S_PER_PARTITION, Broker
from kafkacore.clock import JumpingClock
from kafkacore.config import BrokerConfig
from kafkacore.config_listeners import LOOPBACK, listeners_of, written
from kafkacore.errors import BrokerNotAvailable, KafkaError, KafkaTimeoutError, UsageError
from kafkacore.protocol.schema import Request

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

    def bear(self) -> tuple[int, socket.socket, socket.socket]:
        """A child that waits for its settings.

        Returns:
            Its process id, the socket that is its life, and the line to it.

        Raises:
            BrokerNotAvailable: no process could be made.
        """
        with self._lock:
            for _ in range(2):  # the nursery may have been killed: once more with a new one
                if self._control is None or self._owner_pid != os.getpid():
                    self._begin()
                assert self._control is not None
                ours, theirs = socket.socketpair()
                line, line_there = socket.socketpair()
                try:
                    socket.send_fds(self._control, [b"b"], [theirs.fileno(), line_there.fileno(), *_STREAMS])
                    ours.settimeout(BIRTH_TIMEOUT_S)
                    theirs.close()
                    line_there.close()
                    return int(_read_line(ours)), ours, line
                except (OSError, EOFError):
                    for end in (ours, theirs, line, line_there):
                        end.close()
                    self._end()
        raise BrokerNotAvailable("no process for a broker could be made; what it says is on stderr")

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        # The package may have been found by the working directory or by a changed sys.path, which a new interpreter would not have.
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)
        # Libraries with threads of their own must not have them when children are forked.
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        # Without -P the working directory would come first, and a json.py there would run in every broker (CWE-426).
        command = [sys.executable, "-P", "-c", "from kafkacore.broker.processes import nurse; nurse()"]
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
        host: str = LOOPBACK,
        port: int = 0,
        log_dirs: Sequence[str | os.PathLike[str]] | None = None,
        api_versions: Mapping[int, tuple[int, int]],
        supported_features: Mapping[str, tuple[int, int]] = FEATURES,
        emulate: str = NEWEST,
        jumping_clock: bool = False,
    ) -> None:
        """Prepares a broker; `start` makes the process.

        Args:
            config: settings.
            node_id: its id in the cluster.
            controller: where it registers; `set_controller` may name it later.
            host, port: where it listens, unless config has listeners; 0 lets the system choose, and `came_up` tells the choice.
            log_dirs: directories for the logs; None keeps them in the child's memory, gone with it.
            api_versions: what it advertises.
            supported_features: the levels of Kafka's features it says it supports, (lowest, highest) by name.
            emulate: the release whose message format and errors it has.
            jumping_clock: its clock can be set wrong, by the operation "jump_clock".
        """
        self.config = config
        self.node_id = node_id
        self.controller = controller
        self.listeners = list(listeners_of(config, host, port))
        self.pid: int | None = None
        self._log_dirs = None if log_dirs is None else [os.fspath(path) for path in log_dirs]
        self._api_versions = dict(api_versions)
        self._supported_features = dict(supported_features)
        self._emulate = emulate
        self._jumping_clock = jumping_clock
        self._controls: dict[int, Control] = {}
        self._paused = False
        self._life: socket.socket | None = None
        self._line: ParentLine | None = None
        self._owner_pid = os.getpid()

    def set_controller(self, controller: ControllerAddress) -> None:
        """Where the broker registers when it starts next."""
        self.controller = controller

    @property
    def address(self) -> str:
        """host:port of the first listener, as clients are given it, for bootstrap_servers; the port is 0 until it is known."""
        return self.listeners[0].address

    def came_up(self, ports: Mapping[str, int]) -> None:
        """The ports that clients are given, by listener: those that the system chose hold for every later start."""
        self.listeners = [each._replace(port=each.port or ports[each.name]) for each in self.listeners]

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return not self._ended(0)

    @property
    def life(self) -> int:
        """A descriptor that becomes readable when the process ends; -1 if it has never run or was stopped."""
        return -1 if self._life is None else self._life.fileno()

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
        config = self.config if self.config.listeners is None else self.config.replace(listeners=written(self.listeners)[0])
        settings = {
            "node_id": self.node_id,
            "host": self.listeners[0].host,
            "port": self.listeners[0].port,
            "controller": list(self.controller),
            "log_dirs": self._log_dirs,
            "api_versions": [[key, low, high] for key, (low, high) in self._api_versions.items()],
            "supported_features": [[name, low, high] for name, (low, high) in self._supported_features.items()],
            "emulate": self._emulate,
            "config": {name: getattr(config, name) for name in sorted(config.given)},
            "controls": [*self._controls],
            "jumping_clock": self._jumping_clock,
        }
        self._forget()
        self._owner_pid = os.getpid()
        self.pid, self._life, line = _nursery.bear()
        self._line = ParentLine(line, str(self.node_id), self._controls)
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
            timeout_s = STOP_TIMEOUT_S + STOP_S_PER_PARTITION * self._partitions()
            if not self._ended(timeout_s):
                self._signal(signal.SIGKILL)
                self._forget()
                raise KafkaTimeoutError(f"the process of broker {self.node_id} did not end within {timeout_s:g} s and was killed")
        else:
            self._signal(signal.SIGKILL)
            self._ended(STOP_TIMEOUT_S)
        self._forget()

    def _partitions(self) -> int:
        """How many partitions it holds, where that is known."""
        return 0

    def pause(self) -> None:
        """Suspends the process: its sockets stay, nothing is answered."""
        self._paused = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends `pause`."""
        self._paused = False
        self._signal(signal.SIGCONT)

    @property
    def controls(self) -> Mapping[int, Control]:
        """The functions that `control` has put before APIs, by number."""
        return self._controls

    def control(self, api_key: int, fn: Control | None) -> None:
        """Puts a function before the handler of an API; see `Broker.control`. It runs in this process, in a thread of this broker's line,
        and the broker waits for what it returns. It stays when the broker starts again, and counts from `resume` on if it is paused.

        Raises:
            UsageError: the API is not served.
        """
        if api_key not in SERVED:
            raise UsageError(f"API {api_key} is not served, so nothing would call the function")
        if fn is None:
            self._controls.pop(api_key, None)
        else:
            self._controls[api_key] = fn
        if self._line is not None and self.running:
            (self._line.tell if self._paused else self._line.call)("control", api_key, fn is not None)

    def call(self, name: str, *arguments: Any) -> Any:
        """Has the broker's thread do something.

        Args:
            name: high_watermark or end_offset (topic, partition), jump_clock (ms, asleep).
            arguments: of the operation.

        Raises:
            BrokerNotAvailable: it does not run.
            KafkaTimeoutError: it hangs.
            KafkaError: what the operation raised.
        """
        if self._line is None:
            raise BrokerNotAvailable(f"{name}: the process of broker {self.node_id} does not run", broker=self.node_id)
        return self._line.call(name, *arguments)

    def _signal(self, number: int) -> None:
        if self.pid is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _forget(self) -> None:
        life, line, self._life, self._line, self.pid, self._paused = self._life, self._line, None, None, None, False
        if life is not None:
            life.close()
        if line is not None:
            line.close()


# ---- in the children


def _read_line(life: socket.socket) -> bytes:
    """A line, byte by byte, so that nothing behind it is taken."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = life.recv(1)
        if not byte:
            raise EOFError("the other process has ended")
        line += byte
    return bytes(line)


def nurse() -> None:
    """The nursery's process: forks a child for every socket it is sent, until the end of its own."""
    control = socket.socket(fileno=_CONTROL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # this process does not ask how a child ended
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 2 + len(_STREAMS))
        if not message:
            return
        if os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        life, line, *streams = descriptors
        for descriptor, stream in zip(streams, _STREAMS, strict=True):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        status = 1
        try:
            status = _live(socket.socket(fileno=life), socket.socket(fileno=line))
        except BaseException:
            logger.exception("a broker's process failed")
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)  # not the nursery's way out


class _Child(Broker):
    """A broker whose control functions are in the parent process."""

    line: ChildLine

    def _ask(self, control: Control, request: Request, version: int) -> Any:
        return self.line.ask(request, version)

    def control_there(self, api_key: int, wanted: bool) -> None:
        """Whether the parent is asked about every request of an API."""
        self.control(api_key, _in_parent if wanted else None)

    def operations(self) -> dict[str, Operation]:
        """What the parent may call, in this broker's thread."""

        def jump_clock(ms: int, asleep: bool) -> None:
            assert isinstance(self.clock, JumpingClock)
            (self.clock.sleep if asleep else self.clock.jump)(ms)

        return {
            "control": self.control_there,
            "high_watermark": lambda topic, partition: self.state.replicas.partition(topic, partition).high_watermark,
            "end_offset": lambda topic, partition: self.state.replicas.partition(topic, partition).log.end_offset,
            "jump_clock": jump_clock,
        }


def _in_parent(request: Any) -> None:
    """Stands in a child's table for a function of the parent, which `_Child._ask` has called there."""


def _live(life: socket.socket, line: socket.socket) -> int:
    """A broker's process, from its settings to its end. Returns the exit status."""
    raise_descriptor_limit()  # the nursery was made before this process's parent may have raised its own
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
    try:
        broker = _Child(
            BrokerConfig(**settings["config"]),
            settings["node_id"],
            ControllerAddress(*settings["controller"]),
            host=settings["host"],
            port=settings["port"],
            log_dirs=settings["log_dirs"],
            api_versions={key: (low, high) for key, low, high in settings["api_versions"]},
            supported_features={name: (low, high) for name, low, high in settings["supported_features"]},
            emulate=settings["emulate"],
            clock=JumpingClock() if settings["jumping_clock"] else None,
        )
        for api_key in settings["controls"]:
            broker.control_there(api_key, True)
        broker.line = ChildLine(line, str(broker.node_id), broker.operations(), broker.post)
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
            broker.call(broker.state.controller.close)  # it ended with the parent, so no controller can take over
        broker.stop()
    except KafkaError as error:
        sys.stderr.write(f"broker {settings['node_id']}: {error}\n")
        return 1
    return 0
