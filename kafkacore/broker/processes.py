"""Brokers in processes of their own, around a controller in this one.

    this process                        a child per broker
    ControllerServer  <-- registration, heartbeats, requests, the metadata log --  Broker
    BrokerProcess     -- settings on stdin; its end is the child's ------------->  main()

A child lives as long as the pipe to its stdin: when this process dies, however it dies, the child reads the end and stops. SIGTERM stops
it cleanly. SIGKILL is noticed by the end of its connection to the controller. Children have a session of their own, so that Ctrl+C in a
terminal reaches only the parent, which then stops them in order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kafkacore.broker.controller.remote import ControllerAddress
from kafkacore.broker.server import CONTROLLED_SHUTDOWN_MAX_MS, Broker
from kafkacore.config import BrokerConfig
from kafkacore.errors import KafkaError, KafkaTimeoutError, UsageError

_STDIN = 0
STOP_TIMEOUT_S = CONTROLLED_SHUTDOWN_MAX_MS / 1000 + 5


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
            host, port: where it listens; 0 lets the system choose, see `port`.
            log_dirs: directories for the logs; None keeps them in the child's memory, gone with it.
            api_versions: what it advertises.
        """
        self.config = config
        self.node_id = node_id
        self.controller = controller
        self.host = host
        self.port = port
        self._log_dirs = None if log_dirs is None else [os.fspath(path) for path in log_dirs]
        self._api_versions = dict(api_versions)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port for bootstrap_servers; the port is 0 until it is known."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process's id; None if there is none."""
        return self._process.pid if self._process is not None and self.running else None

    def start(self) -> BrokerProcess:
        """Starts the process; nothing happens if it runs. It serves when the controller has unfenced it."""
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
        command = [sys.executable, "-c", "from kafkacore.broker.processes import main; main()"]
        # The package may have been found by the working directory or by a changed sys.path, which a child would not have.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env=environment)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(settings).encode() + b"\n")
        self._process.stdin.flush()
        return self

    def stop(self, clean: bool = True) -> None:
        """Ends the process and waits for its end.

        Args:
            clean: by SIGTERM, so that others take over first and the logs are closed; else by SIGKILL.

        Raises:
            KafkaTimeoutError: it did not end; it has been killed.
        """
        process, self._process = self._process, None
        if process is None:
            return
        if not clean:
            process.kill()
        elif process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise KafkaTimeoutError(f"the process of broker {self.node_id} did not end within {STOP_TIMEOUT_S} s and was killed") from None
        finally:
            if process.stdin is not None:
                process.stdin.close()

    def pause(self) -> None:
        """Suspends the process: its sockets stay, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)


def _read_line(descriptor: int) -> bytes:
    """A line, byte by byte: a buffer of sys.stdin would be held by the watching thread when the interpreter ends."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            sys.exit("the settings end early")
        line += byte
    return bytes(line)


def main() -> None:
    """A broker's process: settings in the first line of stdin, and the end of stdin is the end of the broker."""
    stop = threading.Event()
    orphaned = threading.Event()

    def terminate(number: int, frame: Any) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, terminate)
    settings = json.loads(_read_line(_STDIN))

    def watch_parent() -> None:
        while os.read(_STDIN, 1):
            pass
        orphaned.set()
        stop.set()

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
        sys.exit(f"broker {settings['node_id']} cannot start: {error}")

    def watch_broker() -> None:
        broker.serve_forever()
        stop.set()

    threading.Thread(target=watch_broker, name="kafkacore-end", daemon=True).start()
    stop.wait()
    try:
        if orphaned.is_set():
            broker.call(broker.state.controller.close)  # it is gone with the parent, so there is nobody to hand over to
        broker.stop()
    except KafkaError as error:
        sys.exit(f"broker {settings['node_id']}: {error}")


if __name__ == "__main__":
    main()
