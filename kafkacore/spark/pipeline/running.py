"""Running a pipeline: one Spark session, and in it updates by Spark's own declarative pipelines, one or one after the other.

An update reads everything there was when it began and ends (Spark's AvailableNow); "continuous" is updates without end in the same session,
so that the second does not pay for the start, where `has_news`. Each update registers the flows again, as `spark-pipelines run` does.

Source: pyspark.pipelines.cli.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkacore.errors import ConfigError, KafkaError, UsageError
from kafkacore.private_files import make_directory, open_file
from kafkacore.spark.home import is_local
from kafkacore.spark.java import NO_SPARK, ensure_java, started_fast
from kafkacore.spark.pipeline.defined import SESSION_VARIABLES, check_tables, noting, tables_before_spark
from kafkacore.spark.pipeline.project import Project
from kafkacore.spark.pipeline.reads import News, reading
from kafkacore.spark.pipeline.status import Events, Status, flow_name, one_line
from kafkacore.spark.pipeline.topics import BOOTSTRAP, PREFIX, admin_client

NEEDED = ("pyspark", "grpc", "grpc_status", "google.rpc", "zstandard", "yaml", "pandas", "pyarrow")
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.sql.pipelines.execution.maxConcurrentFlows": "1",
}
"""What a session of ours has unless the pipeline's configuration says otherwise.

One flow after the other: queries that start at the same time and read the same view share parts of its plan, one of which Spark 4.3 changes
without a lock; all of them then fail with "Task not serializable ... Illegal size 5 of collection, expected 6"."""


log = logging.getLogger(__name__)

QUIET_S = 0.5
REPORTS_WAIT_S = 10.0
REACH_S = 10.0
UNRESOLVED = "Failed to resolve flows in the pipeline"
"""Spark's error when flows do not fit together; why, only its events say."""
LOCAL_RETRIES = {"max_retries": 5, "max_backoff": 2_000}
"""Of calls to a server that is our own child: pyspark's own ten minutes make sense where a network lies between. Five seconds."""


class PipelineFailed(UsageError):
    """An update failed.

    Attributes:
        reason: why.
        flow: that failed first, if Spark said which; the text names it before the reason.
    """

    def __init__(self, reason: str, flow: str | None = None) -> None:
        """Says why, and of which flow."""
        super().__init__(f"flow {flow}: {reason}" if flow else reason)
        self.reason = reason
        self.flow = flow


def missing(remote: str | None = None) -> str | None:
    """What keeps pipelines from running here, and what to do about it; None if nothing does. Starts nothing.

    Args:
        remote: the Connect server to run on, which has a Java of its own.
    """
    for name in NEEDED:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"{NO_SPARK} ({name} is missing)"
    if importlib.util.find_spec("pyspark.pipelines") is None:
        return "declarative pipelines need pyspark 4.1 or later: pip install -U 'pyspark[connect,pipelines]'"
    if remote is None:
        try:
            ensure_java()
        except KafkaError as error:
            return str(error)
    return None


def _reach(remote: str) -> None:
    """Raises unless a server listens at that address: pyspark would try for ten minutes, and once more when the process ends."""
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    try:
        address: str = DefaultChannelBuilder(remote).endpoint
    except PySparkException as error:
        raise UsageError(one_line(error)) from None
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except OSError as error:
        raise UsageError(f"no Spark Connect server answers at {address}: {error}") from None


def reach_kafka(configuration: Mapping[str, str]) -> None:
    """Raises unless the pipeline's Kafka answers its clients: each flow would wait a minute for it, and try again.

    Args:
        configuration: the session's; of its settings for Kafka those that an admin client has are used.

    Raises:
        UsageError: names the address and says why. A Kafka that seems to want TLS or SASL is there, which is enough.
        ConfigError: a setting or a reference to a secret is wrong.
    """
    from kafkacore.net.client import WANTS_MORE, WANTS_TLS

    try:
        with admin_client(configuration) as admin:
            admin.describe_cluster(timeout=REACH_S)
    except ConfigError:
        raise
    except KafkaError as error:
        if f"{PREFIX}kafka.security.protocol" not in configuration and any(each in str(error) for each in (WANTS_MORE, WANTS_TLS)):
            log.warning("%s; %skafka.security.protocol etc. say how, unless each flow has them", error, PREFIX)
            return                                                # it is there, and flows may have settings of their own
        raise UsageError(f"Kafka at {configuration[BOOTSTRAP]} cannot be used: {error}") from None


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """What goes wrong while something ends must not hide why it ends."""
    try:
        yield
    except Exception as error:
        log.warning("%s did not end in order: %s", what, one_line(error))


class Session:
    """A Spark session with its Connect server, in which pipelines can be run. A context manager; one per process."""

    def __init__(self, project: Project, bootstrap_servers: str, remote: str | None = None, *, unsafe_arrow: bool = False) -> None:
        """Prepares one; `__enter__` starts it.

        Args:
            project: whose configuration the session gets.
            bootstrap_servers: the Kafka for `kafka_options`.
            remote: a Connect server that runs already, as sc://HOST:PORT; default one that is started here.
            unsafe_arrow: for the server that is started here, as for `kafkacore.spark.session`.

        Raises:
            ConfigError: unsafe_arrow for a server that runs already.
        """
        if unsafe_arrow and remote is not None:
            raise ConfigError("unsafe_arrow has no effect on a Connect server that runs already: it is set where that is started")
        self.unsafe_arrow = unsafe_arrow
        self.project = project
        self.remote = remote
        self.configuration = {**DEFAULTS, **project.configuration, BOOTSTRAP: bootstrap_servers}
        self.news = News()
        self.spark: Any = None
        self._files: list[tuple[Path, int]] = []
        self._context: Any = None
        self._reports: Any = None

    def check(self, full_refresh: Sequence[str]) -> None:
        """Before it is entered: says if there are no such tables, where that can be known without Spark; `update` knows in any case.

        Raises:
            ConfigError: there is no such table.
        """
        if full_refresh and (tables := tables_before_spark(self.project.spec, self.configuration)) is not None:
            check_tables(full_refresh, tables)

    def __enter__(self) -> Session:
        reason = missing(self.remote)
        if reason is not None:
            raise UsageError(reason)
        if self.remote is not None:
            _reach(self.remote)
        else:
            reach_kafka(self.configuration)                       # a server elsewhere reaches Kafka itself
        make_directory(self.project.state)
        try:
            self._start()
        except BaseException as error:
            self._stop()
            if isinstance(error, Exception):
                raise UsageError(f"Spark does not start: {one_line(error)} (its own words are in {self.project.log})") from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        if self.remote is None:
            self._start_server()
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"            # pyspark.sql.functions then speak Connect
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")                       # of pandas' version, of settings that only a new server would take
            from pyspark.sql.connect.session import SparkSession

            options = {**self.configuration, "spark.remote": self.remote or self._address}
            self.spark = SparkSession.builder.config(map=options).getOrCreate()
        if self.remote is None:
            from pyspark.sql.connect.client.retries import DefaultPolicy

            self.spark.client.set_retry_policies([DefaultPolicy(**LOCAL_RETRIES)])

    def _start_server(self) -> None:
        """The JVM, with a Connect server on a port of its own: `spark-pipelines` takes 15002, and only one can."""
        from pyspark import SparkConf, SparkContext

        parent = str(Path(__file__).resolve().parents[3])
        os.environ["PYTHONPATH"] = os.pathsep.join([parent, *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", os.urandom(16).hex())
        conf = self._server_conf(SparkConf())
        master, parallelism = conf.get("spark.master"), conf.get("spark.default.parallelism")
        fast = started_fast(master, unsafe_arrow=self.unsafe_arrow, parallelism=parallelism)
        with _said_into(self.project.log), fast, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._context = SparkContext(conf=conf)
        service = getattr(self._context._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        self._address = f"sc://localhost:{getattr(service, 'MODULE$').localPort()}"
        os.environ["SPARK_LOCAL_REMOTE"] = "1"

    def _server_conf(self, conf: Any) -> Any:
        """The settings of the JVM. It runs what clients and executors send it, so no other machine reaches it unless a cluster is named."""
        conf.setMaster("local[*]").setAppName(self.project.name).setAll(list(self.configuration.items()))
        conf.set("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        conf.set("spark.connect.grpc.binding.address", "127.0.0.1").set("spark.connect.grpc.binding.port", "0")
        if is_local(conf.get("spark.master")):
            conf.setIfMissing("spark.driver.host", "127.0.0.1").setIfMissing("spark.driver.bindAddress", "127.0.0.1")
        return conf.set("spark.sql.warehouse.dir", conf.get("spark.sql.warehouse.dir", (self.project.root / "warehouse").as_uri()))

    def _stop(self) -> None:
        self.news.close()
        with _told("the session"):
            if self.spark is not None:
                self.spark.stop()
        for name in SESSION_VARIABLES:
            os.environ.pop(name, None)
        with contextlib.suppress(Exception) if self._ended() is not None else _told("Spark's server"):
            if self._context is not None:
                self._context.stop()
                gateway = self._context._gateway
                gateway.shutdown()
                gateway.proc.stdin.close()                        # the JVM ends with its input
                gateway.proc.wait(30)
        self.spark = self._context = None

    # ---- what goes on in it

    @contextlib.contextmanager
    def watched(self, progressed: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
        """Calls `progressed` with every progress report of the session's queries, from another thread.

        The listener stays: pyspark 4.3 takes its lock to remove one and then waits for the thread that needs the lock for the next report.
        """
        if self._reports is None:
            self._reports = _listener()
            self.spark.streams.addListener(self._reports)
        self._reports.progressed = progressed
        patient = True
        try:
            yield
        except KeyboardInterrupt:
            patient = False                                       # the queries still run: their reports would have no end
            raise
        finally:
            if patient:
                self._reports.wait_until_quiet()
            self._reports.progressed = None

    def update(
        self,
        event: Callable[[str], None],
        *,
        dry: bool = False,
        full_refresh: Sequence[str] = (),
        full_refresh_all: bool = False,
    ) -> list[str]:
        """One update: everything there is now, through all flows.

        Args:
            event: is called with what is done, and with each line Spark says about it.
            dry: only check that the flows fit together.
            full_refresh: tables to empty and compute again; no others are touched then.
            full_refresh_all: all of them, and every sink gets its rows once more.

        Returns:
            The names of the flows.

        Raises:
            ConfigError: there is no such table.
            FlowFault: an option of a flow is wrong, or it reads a topic that does not exist.
            PipelineFailed: says which flow and why.
        """
        from pyspark.pipelines import cli
        from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

        events = Events(event)
        event("planning")
        try:
            spec = cli.load_pipeline_spec(self.project.spec)
            graph = create_dataflow_graph(self.spark, spec.catalog, spec.database, {})  # the session has it all
            registry = reading(noting(SparkConnectGraphElementRegistry))(self.spark, graph)
            first, self._files = not self._files, self._changed()
            with contextlib.redirect_stdout(io.StringIO()):       # it prints the files it loads
                cli.register_definitions(self.project.spec, registry, spec, self.spark, graph)
            check_tables(full_refresh, registry.tables)
            if self.remote is None:                               # another machine's server reaches Kafka itself
                if first:
                    registry.reads.check_topics(tolerant=not dry)
                self.news.began(registry.reads)
            results = start_run(
                self.spark,
                graph,
                full_refresh=list(full_refresh),
                full_refresh_all=full_refresh_all,
                refresh=[],
                dry=dry,
                storage=self.project.storage,
            )
            for result in results:
                if "pipeline_event_result" in result:
                    events(result["pipeline_event_result"].event.message)
            events.end()
        except KafkaError:
            raise
        except Exception as error:
            events.end()
            failed = events.failed
            if failed is None:
                raise PipelineFailed(self._why(error)) from error
            told = failed.reason if UNRESOLVED in str(error) else ""
            raise PipelineFailed(told or self._why(error), failed.flow) from error
        return [flow_name(name) for name in registry.flows]

    def has_news(self) -> bool:
        """Whether another update may have something to do; asks Kafka once for the ends of the topics, where that is enough to know."""
        return self._ended() is not None or self._files != self._changed() or self.news.is_there()

    def _changed(self) -> list[tuple[Path, int]]:
        """The project's files and when they were written."""
        found = []
        for path in [self.project.spec, *self.project.files()]:
            with contextlib.suppress(OSError):                    # removed just now
                found.append((path, path.stat().st_mtime_ns))
        return found

    def _ended(self) -> int | None:
        """The exit status of Spark's process; None while it runs, and if it is none of ours."""
        return None if self._context is None else self._context._gateway.proc.poll()

    def _why(self, error: Exception) -> str:
        """In one line, why an update failed."""
        status = self._ended()
        if status is not None:
            return f"Spark's process has ended with status {status} (its own words are in {self.project.log})"
        return one_line(error)


def _listener() -> Any:
    """A listener that hands on progress reports, and knows when the last one has come."""
    import json

    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        progressed: Callable[[Mapping[str, Any]], None] | None = None

        def __init__(self) -> None:
            self._lock = threading.RLock()  # Condition.__enter__ is Python: Ctrl+C in it would leave the lock taken
            self._changed = threading.Condition(self._lock)
            self._running: set[str] = set()
            self._events = 0

        def _note(self, run_id: Any, ended: bool) -> None:
            with self._lock:
                (self._running.discard if ended else self._running.add)(str(run_id))
                self._events += 1
                self._changed.notify_all()

        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            if self.progressed is not None:
                self.progressed(json.loads(event.progress.json))
            self._note(event.progress.runId, ended=False)

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            self._note(event.runId, ended=True)

        def wait_until_quiet(self) -> None:
            """Returns when every query that was heard of has ended and nothing more comes for a moment; at the latest when time is up."""
            deadline = time.monotonic() + REPORTS_WAIT_S
            with self._lock:
                while time.monotonic() < deadline:
                    heard = self._events
                    more = self._changed.wait_for(lambda seen=heard: self._events != seen, QUIET_S)  # type: ignore[misc]
                    if not more and not self._running:
                        return

    return Listener()


class Recorder:
    """Keeps a status up to date while its pipeline runs, and on disk. Thread-safe: reports come from Spark's thread.

    Attributes:
        heard: is called after each report, in that thread.
    """

    def __init__(self, project: Project, now: Callable[[], str]) -> None:
        self.status = Status.read(project.status, project.name)
        self.status.pipeline = project.name
        self.heard: Callable[[], None] | None = None
        self._path = project.status
        self._now = now
        self._lock = threading.Lock()

    def started(self) -> None:
        """A run begins."""
        with self._lock:
            self.status.state, self.status.started_at, self.status.ended_at = "running", self._now(), None
            self.status.write(self._path)

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """A query has reported."""
        with self._lock:
            self.status.progressed(progress)
            self.status.write(self._path)
        if (heard := self.heard) is not None:
            heard()

    def began(self) -> None:
        """An update begins."""
        with self._lock:
            self.status.unfinished = True
            self.status.write(self._path)

    def updated(self, seconds: float) -> None:
        """An update has succeeded."""
        with self._lock:
            self.status.updates += 1
            self.status.unfinished = False
            self.status.finished_at, self.status.seconds, self.status.last_error = self._now(), round(seconds, 3), None
            self.status.write(self._path)

    def failed(self, error: BaseException) -> None:
        """The run ends with an error."""
        with self._lock:
            told = {"at": self._now(), "text": getattr(error, "reason", None) or one_line(error)}
            flow = getattr(error, "flow", None)
            self.status.state, self.status.ended_at = "failed", told["at"]
            self.status.last_error = told if flow is None else {**told, "flow": flow}
            self.status.write(self._path)

    def stopped(self) -> None:
        """The run ends."""
        with self._lock:
            self.status.state, self.status.ended_at = "stopped", self._now()
            self.status.write(self._path)


@contextlib.contextmanager
def _said_into(log: Path) -> Iterator[None]:
    """What processes started meanwhile say on stderr goes into a file, for as long as they live."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open_file(log, "ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
