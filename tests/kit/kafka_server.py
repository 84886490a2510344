"""Apache Kafka 4.3.1 on loopback for the tests marked `kafka`: fetched by Maven once, formatted and started per test run.

The jars are kept in $KAFKACORE_KAFKA_JARS, or in the user's cache directory; nothing is ever written into the checkout.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.kit.free_ports import free_port

VERSION = "4.3.1"
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.logging.log4j", "log4j-core", "2.25.2"),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.2"),
)
LOG4J = """status=error
rootLogger.level=error
rootLogger.appenderRef.c.ref=C
appender.c.type=Console
appender.c.name=C
appender.c.follow=true
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%m%n
"""
# Tools and the nodes of tests live for seconds: the cheap compiler and collector start faster than the good ones would ever pay back.
FAST_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
KAFKAS_JVM = ("-XX:+UseG1GC",)


def why_unavailable() -> str | None:
    """The reason why a real Kafka cannot run here, or None."""
    if shutil.which("java") is None:
        return "no `java` on the PATH: tests on a real Kafka need Java 17 or later"
    if not (jar_directory() / "done").exists() and shutil.which("mvn") is None:
        return "no `mvn` on the PATH: tests on a real Kafka fetch it by Maven"
    return None


def jar_directory() -> Path:
    """Where the jars are, or will be."""
    if given := os.environ.get("KAFKACORE_KAFKA_JARS"):
        return Path(given)
    cache = Path(os.environ.get("KAFKACORE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkacore")
    return cache / f"kafka-{VERSION}"


@contextlib.contextmanager
def _alone(where: Path) -> Iterator[None]:
    """One process at a time, of all that use the directory."""
    where.mkdir(parents=True, exist_ok=True)
    with open(where / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch_jars() -> Path:
    """Kafka's jars, fetched by Maven unless they are there."""
    return fetched(jar_directory(), ARTIFACTS)


def fetched(where: Path, artifacts: Sequence[tuple[str, str, str]], *, alone: bool = False) -> Path:
    """A directory with these jars, filled by Maven unless it is; a half-finished fetch is never taken for a whole one.

    Args:
        where: the directory.
        artifacts: (group, name, version) of each.
        alone: nothing of what they depend on.
    """
    if (where / "done").exists():
        return where
    with _alone(where):
        if not (where / "done").exists():
            without = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>" if alone else ""
            dependencies = "".join(
                f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{without}</dependency>"
                for group, name, version in artifacts
            )
            (where / "pom.xml").write_text(
                '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>kafkacore.test</groupId>'
                f"<artifactId>jars</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"
            )
            command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={where}"]
            subprocess.run(command, cwd=where, check=True, stdout=subprocess.DEVNULL, timeout=600)
            (where / "done").touch()
    return where


def prepared() -> Path:
    """What every node would do again when it starts, done once and kept beside the jars: `data`, a formatted directory, and `classes.jsa`,
    the loaded classes (JVM's class data sharing). Two thirds of a start are saved. Another JVM makes its own."""
    where = fetch_jars()
    java = Path(shutil.which("java") or "java").resolve().stat()
    kept = where / f"prepared-{java.st_size:x}-{java.st_mtime_ns:x}"
    if kept.exists():
        return kept
    with _alone(where):
        if not kept.exists():
            node = KafkaServer()
            node.tool("kafka.tools.StorageTool", "format", "-t", "kafkacoreTestsClusterQ", "-c", node.properties)
            made = Path(tempfile.mkdtemp(prefix="preparing-", dir=where))
            shutil.copytree(node.directory / "data", made / "data")
            node.start("-XX:+IgnoreUnrecognizedVMOptions", f"-XX:ArchiveClassesAtExit={made / 'classes.jsa'}")
            node.kill(signal.SIGTERM)
            node.__exit__()
            made.rename(kept)
    return kept


def fast_jvm() -> list[str]:
    """Options of a JVM that lives for seconds; what it thinks of the archive of classes it keeps to itself."""
    return [*FAST_JVM, f"-XX:SharedArchiveFile={prepared() / 'classes.jsa'}", "-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:disable"]


class KafkaServer:
    """One Kafka node (broker and controller) in a directory of its own.

    Args:
        **settings: further broker settings, underscores for dots.
    """

    IS_FAST = True
    """Whether it is to be up soon, which tests want, or run well for long."""

    def __init__(self, **settings: Any) -> None:
        self.jars = fetch_jars()
        self.directory = Path(tempfile.mkdtemp(prefix="kafkacore-kafka-"))
        self.port, controller_port = free_port(), free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.bootstrap_controllers = f"127.0.0.1:{controller_port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.system_properties: list[str] = []
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.directory / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 5,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 5,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # Records with timestamps of long ago stay where a test put them: retention is first applied in a day.
            "log.initial.task.delay.ms": 86_400_000,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.properties = self.directory / "server.properties"
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        (self.directory / "log4j2.properties").write_text(LOG4J)

    def _java(self, main_class: str, *args: object, heap: str, jvm: Sequence[str]) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        return ["java", f"-Xmx{heap}", *jvm, log4j, "-cp", f"{self.jars}/*", main_class, *map(str, args)]

    def tool(self, main_class: str, *args: object, stdin: bytes | None = None, timeout: float = 240) -> bytes:
        """The output of one of Kafka's own tools, in a JVM of its own; raises when it fails. For much of it: else there is `java`."""
        jvm = FAST_JVM if self.process is None else fast_jvm()  # which a node prepares that is never started
        command = self._java(main_class, *args, heap="512m", jvm=jvm)
        return subprocess.run(command, input=stdin, capture_output=True, timeout=timeout, check=True).stdout

    def __enter__(self) -> KafkaServer:
        shutil.copytree(prepared() / "data", self.directory / "data")
        self.start()
        return self

    def start(self, *options: str) -> None:
        """Start the node, with more options for its JVM, and return once its port answers."""
        jvm = [*FAST_JVM, *options] if options else fast_jvm() if self.IS_FAST else KAFKAS_JVM
        with open(self.directory / "kafka.log", "ab") as log:
            command = self._java("kafka.Kafka", self.properties, heap="1g", jvm=[*jvm, *self.system_properties])
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 180  # three seconds on a quiet machine
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)  # its death ends the wait at once
                break
        raise RuntimeError("Kafka did not start: " + (self.directory / "kafka.log").read_text()[-2000:])

    def kill(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """End the node by a signal; SIGKILL is the power cut."""
        assert self.process is not None
        self.process.send_signal(sig)
        self.process.wait(180)

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill(signal.SIGTERM)
        elif self.process is not None and self.process.returncode > 0:  # it ended by itself: a failed test shows why
            log = self.directory / "kafka.log"
            print(f"Kafka ended with {self.process.returncode}:", log.read_text(errors="replace")[-4000:] if log.exists() else "no log")
        shutil.rmtree(self.directory, ignore_errors=True)
