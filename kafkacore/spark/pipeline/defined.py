"""What the files of a pipeline define, by name: as they register it with Spark, and before there is a Spark.

`pyspark.pipelines` hands definitions to whatever registry is active, and a flow's function is not called before the graph is planned. So
the files can be run with a registry that takes down names and a session that knows nothing but its settings: in a process of its own,
since the modules they import would keep that session. Where files ask Spark more than that when they are loaded, nothing is known before.

Source: pyspark.pipelines.cli, pyspark.pipelines.graph_element_registry.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafkacore.errors import ConfigError
from kafkacore.spark.pipeline.status import flow_name

log = logging.getLogger(__name__)

SQL_TABLE = re.compile(r"\b(?:STREAMING\s+TABLE|MATERIALIZED\s+VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?((?:`[^`]+`|[\w.])+)", re.IGNORECASE)
PATIENCE_S = 60
SESSION_VARIABLES = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE")
"""By these pyspark knows that sessions are those of Spark Connect, and that none is to be started."""


def noting(base: type) -> Any:
    """A registry of this kind that keeps the names of tables and flows, in `tables` and `flows`."""
    from pyspark.pipelines.output import Table

    class Registry(base):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.tables: list[str] = []
            self.flows: list[str] = []

        def register_output(self, output: Any) -> None:
            if isinstance(output, Table):
                self.tables.append(output.name)
            super().register_output(output)

        def register_flow(self, flow: Any) -> None:
            self.flows.append(flow.name)
            super().register_flow(flow)

        def register_auto_cdc_flow(self, flow: Any) -> None:
            self.flows.append(flow.name)
            super().register_auto_cdc_flow(flow)

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            found = SQL_TABLE.findall(sql_text)
            self.tables += found
            self.flows += found
            super().register_sql(sql_text, file_path)

    return Registry


def check_tables(wanted: Sequence[str], tables: Sequence[str]) -> None:
    """Spark says nothing to a table that is not there, and does nothing.

    Raises:
        ConfigError: one of those wanted is none of the tables.
    """
    there = {flow_name(name) for name in tables}
    for name in wanted:
        if flow_name(name) not in there:
            known = f"there is {', '.join(sorted(there))}" if there else "it defines no table, and sinks cannot be emptied"
            raise ConfigError(f"the pipeline has no table {name!r} to compute again; {known}")


def tables_before_spark(spec: Path, configuration: Mapping[str, str]) -> list[str] | None:
    """The tables that a pipeline's files define; None if Spark has to run for that.

    Args:
        spec: of the pipeline.
        configuration: what the session will have.
    """
    path = os.pathsep.join(each for each in (str(Path(__file__).resolve().parents[3]), *sys.path) if each)
    command = [sys.executable, "-P", "-m", __name__, str(spec)]    # the directory it is called in is not on the path here either
    known = {**dict.fromkeys(SESSION_VARIABLES, "1"), "SPARK_REMOTE": "sc://127.0.0.1:1"}     # who asks for a session gets ours
    environment = {**os.environ, **known, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, input=json.dumps(dict(configuration)), capture_output=True, text=True, timeout=PATIENCE_S, env=environment, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        log.debug("the tables of %s are not known before Spark runs: %s", spec, error)
        return None
    return [str(name) for name in found] if isinstance(found, list) else None


class _Unstarted:
    """A session without a Spark: its settings, and a note that something else was asked of it."""

    is_stopped = False

    def __init__(self, configuration: Mapping[str, str]) -> None:
        self.conf = _Settings(self, configuration)
        self.client = SimpleNamespace(
            add_threadlocal_user_context_extension=lambda extension: None, remove_user_context_extension=lambda extension: None
        )
        self.asked: list[str] = []

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For who asks whether it is a session: as when Spark runs."""
        from pyspark.sql.connect.session import SparkSession

        return SparkSession

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)                                   # also where the files catch what comes now
        raise RuntimeError(f"{name} needs a Spark that runs")


class _Settings:
    """What the session will have, as far as it is known."""

    def __init__(self, session: _Unstarted, configuration: Mapping[str, str]) -> None:
        self._session = session
        self.getAll = dict(configuration)                         # pyspark's own name

    def get(self, key: str, *default: Any) -> str:
        """A setting of ours; what others are, the server knows."""
        return self.getAll[key] if key in self.getAll else self._session.__getattr__(f"conf {key}")

    def _set_all(self, configs: Mapping[str, Any], silent: bool) -> None:
        """What `SparkSession.builder.getOrCreate()` calls, with the server's address at least."""
        if any(self.getAll.get(key) != value for key, value in configs.items() if key != "spark.remote"):
            self._session.__getattr__("conf.set")

    def __getattr__(self, name: str) -> Any:
        return self._session.__getattr__(f"conf.{name}")


def _tables(spec: Path, configuration: Mapping[str, str]) -> list[str] | None:
    """What `tables_before_spark` says, in the process that is made for it."""
    from pyspark.pipelines import cli
    from pyspark.pipelines.graph_element_registry import GraphElementRegistry
    from pyspark.sql.connect.session import SparkSession

    registry, session = noting(GraphElementRegistry)(), _Unstarted(configuration)
    SparkSession._set_default_and_active_session(session)
    cli.register_definitions(spec, registry, cli.load_pipeline_spec(spec), session, "")
    return None if session.asked else registry.tables


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):                  # stdout is for the answer
        tables = _tables(Path(sys.argv[1]), json.load(sys.stdin))
    print(json.dumps(tables))
