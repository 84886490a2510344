"""Kafka's own command-line tools, run in one JVM that lives as long as the tests (ToolServer.java)."""

from __future__ import annotations

import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, NamedTuple

from tests.kit.kafka_server import LOG4J, fast_jvm, fetch_jars

SOURCE = Path(__file__).with_name("ToolServer.java")


class Ran(NamedTuple):
    """How a tool ended, and what it said."""

    tool: str
    code: int
    out: str
    err: str

    def ok(self) -> str:
        """Its output; raises AssertionError unless it succeeded."""
        assert self.code == 0, f"{self.tool} ended with {self.code}\n{self.out[-3000:]}\n{self.err[-3000:]}"
        return self.out


class JavaTools:
    """Runs tools by the name of their class, `TopicCommand` or `consumer.ConsoleConsumer`, one at a time."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kafkacore-tools-")
        log4j = Path(self._directory.name) / "log4j2.properties"
        log4j.write_text(LOG4J + "appender.c.target=SYSTEM_ERR\n")  # stdout is for the answers
        self.jars = fetch_jars()
        opened = "--add-opens=java.base/java.lang=ALL-UNNAMED"  # for the shutdown hooks
        command = ["java", "-Xmx512m", *fast_jvm(), opened, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{self.jars}/*", str(SOURCE)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, tool: str, *args: object, stdin: bytes = b"", timeout: float = 150) -> Ran:
        """Runs a tool to its end.

        Args:
            tool: class below org.apache.kafka.tools, or a full name.
            *args: its arguments.
            stdin: what it reads.
            timeout: in seconds; the JVM is killed then, which ends the test with an error.
        """
        main_class = tool if tool.startswith(("kafka.", "org.")) else f"org.apache.kafka.tools.{tool}"
        words = [word.encode() for word in (main_class, *map(str, args))]
        assert self._process.stdin is not None and self._process.stdout is not None
        watch = threading.Timer(timeout, self._process.kill)
        watch.start()
        try:
            blocks = b"".join(struct.pack(">i", len(block)) + block for block in (*words, stdin))
            self._process.stdin.write(struct.pack(">i", len(words)) + blocks)
            self._process.stdin.flush()
            (code,) = struct.unpack(">i", self._exactly(self._process.stdout, 4, tool))
            out, err = (
                self._exactly(self._process.stdout, struct.unpack(">i", self._exactly(self._process.stdout, 4, tool))[0], tool)
                for _ in range(2)
            )
        finally:
            watch.cancel()
        return Ran(tool, code, out.decode(), err.decode())

    @staticmethod
    def _exactly(stream: IO[bytes], nbytes: int, tool: str) -> bytes:
        data = stream.read(nbytes)
        if len(data) < nbytes:
            raise RuntimeError(f"the JVM ended while it ran {tool}: too slow, or its main method ended the process")
        return data

    def close(self) -> None:
        """Ends the JVM."""
        self._process.kill()
        self._process.communicate()
        self._directory.cleanup()
