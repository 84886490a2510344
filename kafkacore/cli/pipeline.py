"""`kafkacore pipeline`: projects of Spark's declarative pipelines: made, checked, run once or without end, asked how they are."""

from __future__ import annotations

import datetime
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkacore.cli.options import Failure, Json, print_json
from kafkacore.plurals import counted
from kafkacore.spark.pipeline.project import TEMPLATES, Project, create, lacking
from kafkacore.spark.pipeline.status import Status, event_text, lag, partitions_of
from kafkacore.spark.pipeline.topics import BOOTSTRAP, admin_client

if TYPE_CHECKING:
    from kafkacore.cli.terminal import Stage
    from kafkacore.spark.pipeline.running import Recorder, Session

app = typer.Typer(no_args_is_help=True, help="Pipelines on Spark's own declarative pipelines: init, run, dry-run, status.")

Where = Annotated[Path, typer.Option("--project", metavar="DIR", help="The project, or a directory inside it; or the spec file.")]
HERE = Path(".")
Kafka = Annotated[
    str | None,
    typer.Option(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        envvar="KAFKACORE_BOOTSTRAP_SERVERS",
        help="The Kafka to use; default the spec's, or else a broker of the project's own.",
    ),
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="sc://HOST:PORT", help="Run on this Spark Connect server; default one is started here.")
]
ASK_PATIENCE_MS = 3_000
IDLE_PAUSE_S = 0.5
"""Between two questions whether there is something new, at least."""


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The directory to make; its name becomes the pipeline's.")],
    example: Annotated[str, typer.Option("--example", metavar="EXAMPLE", help=f"What to begin with: {', '.join(TEMPLATES)}.")] = "flights",
    json: Json = False,
) -> None:
    """Write a project that runs as it is. flights: counted by the hour, joined, written to Parquet and a topic. empty: one small flow."""
    written = create(Path(name), example)
    install = "pip install '.[cli,spark,demo]' in a checkout of kafkacore"
    if absent := lacking(example):
        typer.echo(f"the example needs {' and '.join(absent)}, not installed here: {install}; --example empty needs nothing", err=True)
    if json:
        print_json({"project": str(Path(name).absolute()), "files": [str(path) for path in written]})
        return
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo(f"next: {f'{install}, then ' if absent else ''}cd {name} && kafkacore pipeline run && kafkacore pipeline status")


@app.command()
def run(
    project: Where = HERE,
    bootstrap_server: Kafka = None,
    continuous: Annotated[bool, typer.Option("--continuous", help="One update after the other, until Ctrl+C.")] = False,
    once: Annotated[bool, typer.Option("--once", help="One update: everything there is now (the default).")] = False,
    pause: Annotated[float, typer.Option("--pause", min=0, metavar="SECONDS", help="Between the updates of --continuous.")] = 1.0,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="TABLE", help="Empty this table and compute it again, and no other; may be repeated."),
    ] = None,
    full_refresh_all: Annotated[bool, typer.Option("--full-refresh-all", help="All tables again; sinks get their rows again.")] = False,
    remote: Remote = None,
    unsafe_arrow: Annotated[
        bool,
        typer.Option("--unsafe-arrow", help="Spark's Arrow does not check its accesses to memory: see docs/spark.md."),
    ] = False,
    json: Json = False,
) -> None:
    """Run the pipeline: once, or until Ctrl+C. Where it got to is in its checkpoints; the next run goes on there.

    Ctrl+C in a continuous run lets the update finish; a second one ends it at once, and the next run does that update again."""
    if continuous and once:
        raise typer.BadParameter("--continuous and --once exclude each other")
    if full_refresh and full_refresh_all:
        raise typer.BadParameter("--full-refresh and --full-refresh-all exclude each other")
    if continuous and (full_refresh or full_refresh_all):
        raise typer.BadParameter("--continuous would refresh without end: run once with the refresh, then continuously")
    if unsafe_arrow and remote is not None:
        raise typer.BadParameter("--unsafe-arrow and --remote exclude each other: that server runs already")
    found = Project.find(project)
    refresh = {"full_refresh": full_refresh or [], "full_refresh_all": full_refresh_all}
    with session(found, bootstrap_server, remote, refresh=full_refresh or (), unsafe_arrow=unsafe_arrow) as (running, feed, recorder):
        stop = Stopper(continuous, not json)
        steps = True
        with stop:
            while True:
                fed = feed()
                news = bool(steps or fed) or running.has_news()
                if news:                                          # an update takes seconds of CPU, also with nothing to read
                    took = update(running, recorder, refresh, steps=steps)
                    steps = False                                 # a log need not have those of every update without end
                    if json:
                        print_json(_summary(recorder.status, took, fed))
                    else:
                        typer.echo(told(recorder.status, took))
                if not continuous or stop.wait(pause if news else max(pause, IDLE_PAUSE_S)):
                    break


@app.command("dry-run")
def dry_run(project: Where = HERE, bootstrap_server: Kafka = None, remote: Remote = None, json: Json = False) -> None:
    """Check that the flows fit together: names, columns, types. Nothing is read or sent; a broker of the project's own gets its topics."""
    from kafkacore.spark.pipeline.reads import FlowFault
    from kafkacore.spark.pipeline.running import PipelineFailed

    found = Project.find(project)
    with session(found, bootstrap_server, remote, dry=True) as (running, _, _):
        with _doing("checking the flows") as at:
            try:
                flows = running.update(_steps(at), dry=True)
            except (PipelineFailed, FlowFault) as error:
                if json:
                    print_json({"pipeline": found.name, "valid": False, "error": error.reason, "flow": error.flow})
                raise
    if json:
        print_json({"pipeline": found.name, "valid": True, "flows": flows})
    else:
        typer.echo(f"pipeline {found.name} is valid" + (f": {', '.join(flows)}" if flows else ""))


@app.command()
def status(project: Where = HERE, bootstrap_server: Kafka = None, json: Json = False) -> None:
    """Show each flow's lag, rate and expectations, and the last error, as the last run recorded them; the lag of now if Kafka answers."""
    found = Project.find(project)
    recorded = Status.read(found.status, found.name)
    if recorded.state == "running" and not found.is_running():
        recorded.state = "killed"
    named = found.named_kafka(bootstrap_server)
    ends, why = _ends_now({**found.configuration, BOOTSTRAP: named}, recorded) if named is not None and recorded.flows else ({}, None)
    behind = {name: _behind(flow.read_to, ends) if ends else flow.behind for name, flow in recorded.flows.items()}
    if json:
        _print_status_json(recorded, behind, bool(ends), why)
    else:
        _print_status(recorded, behind, bool(ends), why)


# ---- a run


@contextmanager
def session(
    project: Project,
    bootstrap_server: str | None,
    remote: str | None,
    *,
    refresh: Sequence[str] = (),
    visible: bool = True,
    dry: bool = False,
    unsafe_arrow: bool = False,
) -> Iterator[tuple[Session, Callable[[], int], Recorder]]:
    """Everything a run needs, and what it leaves behind: Kafka, Spark, the project's lock, its status.

    Args:
        project: to run.
        bootstrap_server: the Kafka to use, if another than the project's.
        remote: the Connect server to use, if none is to be started.
        refresh: tables that are to be computed again; a name that is wrong is said before Spark starts, if that can be known.
        visible: whether progress is shown.
        dry: whether a status shall not report it as a run.
        unsafe_arrow: as `running.Session` takes it.

    Yields:
        The session; what feeds a broker of the project's own before an update (it says how many records that were); the recorder.
    """
    from kafkacore.spark.pipeline.running import Recorder, Session, missing

    warnings.filterwarnings("ignore", module=r"pyspark\.")       # what is wrong is said in one line, by us
    own = project.named_kafka(bootstrap_server) is None           # wrong addresses are said before anything is started
    reason = missing(remote)
    if reason is not None:
        raise Failure(reason)
    project.check_files()
    with project.locked(remote=remote is not None), project.kafka(bootstrap_server) as address:
        made = Session(project, address, remote, unsafe_arrow=unsafe_arrow)
        if refresh:
            with _doing("looking what the pipeline defines", visible):
                made.check(refresh)
        prepare, seed = project.feeder() if own else (None, None)
        recorder = Recorder(project, lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"))

        said = done = False

        def feed() -> int:
            nonlocal said, done
            if seed is None or done or recorder.status.unfinished:
                return 0
            with _doing("sending what comes next by seed.py", visible and (not said or sys.stderr.isatty())):
                said = True                                       # as of the steps of an update, a log has it once
                sent = seed(address)
            done = not sent                                       # it has said that nothing comes any more
            return sent

        if not dry:
            recorder.started()
        try:
            if prepare is not None:
                with _doing(f"making the topics on the project's own broker at {address}", visible):
                    prepare(address)                              # the flows ask for their topics; what is lacking is said at once
            with _doing("starting Spark" if remote is None else f"connecting to Spark at {remote}", visible):
                running = made.__enter__()
            try:
                with running.watched(recorder.progressed):
                    yield running, feed, recorder
            finally:
                with _doing("ending Spark", visible):
                    running.__exit__()
        except Exception as error:
            if not dry:
                recorder.failed(error)
            raise
        except BaseException:
            if not dry:
                recorder.stopped()
            raise
        if not dry:
            recorder.stopped()


def update(running: Session, recorder: Recorder, refresh: dict[str, Any], *, visible: bool = True, steps: bool = True) -> float:
    """One update, with its progress shown; the seconds it took.

    Args:
        running: the session.
        recorder: of the pipeline.
        refresh: what is to be computed again, as `Session.update` takes it.
        visible: whether progress is shown.
        steps: whether also where no person looks.
    """
    began = time.monotonic()
    rows = {name: flow.rows for name, flow in recorder.status.flows.items()}
    recorder.began()
    with _doing(f"update {recorder.status.updates + 1}", visible and (steps or sys.stderr.isatty())) as at:

        def heard() -> None:
            now = {name: flow.rows - rows.get(name, 0) for name, flow in dict(recorder.status.flows).items()}
            at.detail(", ".join(f"{name} {counted(count, 'row')}" for name, count in now.items()))

        recorder.heard = heard
        try:
            running.update(_steps(at), **refresh)
        finally:
            recorder.heard = None
    took = time.monotonic() - began
    recorder.updated(took)
    return took


def told(status: Status, seconds: float) -> str:
    """An update in one line."""
    behind = {name: "" if flow.behind is None else f", {flow.behind:,} behind" for name, flow in status.flows.items()}
    flows = "; ".join(f"{name} {counted(flow.rows, 'row')}{behind[name]}" for name, flow in status.flows.items())
    return f"update {status.updates} done in {seconds:.1f} s" + (f": {flows}" if flows else "")


def _summary(status: Status, seconds: float, fed: int) -> dict[str, Any]:
    return {
        "update": status.updates,
        "seconds": round(seconds, 3),
        "seeded": fed,
        "flows": {name: {"rows": flow.rows, "behind": flow.behind, "late_rows": flow.late_rows} for name, flow in status.flows.items()},
    }


class Stopper:
    """What Ctrl+C and SIGTERM do: the first ends a continuous run after its update, the second (and the first of a single one) at once."""

    def __init__(self, gentle: bool, visible: bool) -> None:
        self._wanted = False
        self._end, self._ring = os.pipe()                     # not an Event: its lock may be held by the thread that the handler interrupts
        self._gentle = gentle
        self._visible = visible
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopper:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._asked) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._end)
        os.close(self._ring)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if not self._gentle or self._wanted:
            raise KeyboardInterrupt
        self._wanted = True
        os.write(self._ring, b"e")
        if self._visible:
            typer.echo("stopping after this update; once more ends it at once", err=True)

    def wait(self, seconds: float) -> bool:
        """Pauses until the time is up or a signal comes; whether to stop."""
        select.select([self._end], [], [], seconds)
        return self._wanted


@contextmanager
def _doing(what: str, visible: bool = True) -> Iterator[Stage]:
    """Says on stderr what is being done."""
    from kafkacore.cli.terminal import Silence, stage

    with stage(what) if visible else nullcontext(Silence()) as at:
        yield at


def _steps(at: Stage) -> Callable[[str], None]:
    """What shows the events of an update."""

    def event(message: str) -> None:
        if text := event_text(message):
            at.next(text)

    return event


# ---- what status shows


def _ends_now(configuration: Mapping[str, str], recorded: Status) -> tuple[dict[str, dict[str, int]], str | None]:
    """The ends of the partitions that the flows read, asked now; or why they cannot be asked."""
    from kafkacore import errors

    wanted = partitions_of(recorded.flows.values())
    if not wanted:
        return {}, None
    ends: dict[str, dict[str, int]] = {}
    try:
        with admin_client(configuration, default_api_timeout_ms=ASK_PATIENCE_MS) as admin:
            results = admin.list_offsets(dict.fromkeys(sorted(wanted), "latest"))
    except errors.KafkaError as error:
        return {}, str(error)
    for partition, found in results.succeeded.items():
        ends.setdefault(partition.topic, {})[str(partition.partition)] = found.offset
    return ends, "; ".join(f"{partition}: {error}" for partition, error in results.errors.items()) or None


def _behind(read_to: dict[str, dict[str, int]], ends: dict[str, dict[str, int]]) -> int | None:
    known = {topic: {each: ends[topic][each] for each in parts if each in ends[topic]} for topic, parts in read_to.items() if topic in ends}
    return lag(read_to, known) if known else None


def _print_status_json(recorded: Status, behind: dict[str, int | None], asked: bool, why: str | None) -> None:
    from dataclasses import asdict

    data = asdict(recorded)
    for name, flow in data["flows"].items():
        flow["lag"] = behind[name]
    print_json({**data, "lag_is_of_now": asked, "kafka_error": why})


def _print_status(recorded: Status, behind: dict[str, int | None], asked: bool, why: str | None) -> None:
    from rich.table import Table

    from kafkacore.cli.terminal import console, messages

    if recorded.state in ("running", "killed"):
        since = f", started {recorded.started_at}"
    else:                                                         # ended_at: not in what earlier versions recorded
        since = f" since {at}" if (at := recorded.ended_at or recorded.finished_at) else ""
    console.print(f"pipeline {recorded.pipeline}: {recorded.state}{since}, {recorded.updates} updates")
    if not recorded.flows:
        console.print("no flow has reported yet: `kafkacore pipeline run`")
    else:
        table = Table("flow", "rows", "rows/s", "batch ms", "lag" if asked else "lag (recorded)", "late rows", "watermark")
        for column in table.columns[1:-1]:
            column.justify = "right"
        for name, flow in recorded.flows.items():
            rate = "" if flow.rows_per_second is None else f"{flow.rows_per_second:,.0f}"
            left = "" if behind[name] is None else f"{behind[name]:,}"
            took = "" if flow.batch_ms is None else f"{flow.batch_ms:,}"
            table.add_row(name, f"{flow.rows:,}", rate, took, left, f"{flow.late_rows:,}", flow.watermark or "")
        console.print(table)
        expected = Table("flow", "expectation", "failing rows", "failed", "of rows")
        for name, flow in recorded.flows.items():
            for expectation, each in flow.expectations.items():
                does = {"count": "pass", "drop": "are dropped", "fail": "fail the flow", "dead_letter": "go to a topic"}[each.action]
                expected.add_row(name, expectation, does, f"{each.failed:,}", f"{each.rows:,}")
        if expected.row_count:
            console.print(expected)
    if why is not None:
        messages.print(f"Kafka cannot be asked, so the lag is the recorded one: {why}")
    if recorded.last_error is not None:
        of = f"{named}: " if (named := recorded.last_error.get("flow")) else ""
        with suppress(KeyError):
            console.print(f"last error, {recorded.last_error['at']}: {of}{recorded.last_error['text']}")
