"""What the flows of a pipeline read, by the plans that they hand to Spark: topics that do not exist, and whether there is something new.

A flow's plan is made here, on the client's side (Spark Connect): every read of it is there with its format and options. So a misspelled
option or topic is reported before Spark runs, and an update is left out when nothing that it would read has changed. That is known where
the flows read topics and each other's tables alone, and their plans hold nothing that changes by itself, as a clock.

Source: pyspark.sql.connect.proto.relations (Read, SQL), org.apache.spark.sql.pipelines.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkacore.errors import ConfigError, KafkaError
from kafkacore.spark.options import SourceOptions, sink_options, source_options
from kafkacore.spark.pipeline.status import flow_name

if TYPE_CHECKING:
    from kafkacore.spark.clients import OffsetSource
    from kafkacore.spark.offsets import Partition

log = logging.getLogger(__name__)

FORMAT = "kafkacore"
READ, SQL = "spark.connect.Read", "spark.connect.SQL"
CHANGES_BY_ITSELF = re.compile(
    r"current_(?:date|timestamp|time)|curdate|localtime|\bnow\b|unix_timestamp|\brandn?\b|random|uuid"
    r"|python_udf|python_udtf|java_udf|scalar_scala_udf|map_partitions|group_map"
)
"""In the text of a batch plan: it may give something else without new records."""
TIMERS = re.compile(r"with_?state")
"""In the text of any plan: state that can have timers."""


class FlowFault(ConfigError):
    """An option or a topic of a flow is wrong.

    Attributes:
        flow: which.
        reason: why, without the flow.
    """

    def __init__(self, flow: str, reason: str) -> None:
        """Names the flow before the reason."""
        super().__init__(f"flow {flow}: {reason}")
        self.flow, self.reason = flow, reason


@dataclasses.dataclass
class Reads:
    """What is known of the reads of a pipeline's flows.

    Attributes:
        kafka: the reads of topics, by flow.
        tables: names of tables and views that are read.
        outputs: names of the tables and views that the pipeline makes.
        sinks: topics that it writes.
        unknown: why it cannot be known whether there is something new; None if it can.
    """

    kafka: list[tuple[str, SourceOptions]] = dataclasses.field(default_factory=list)
    tables: set[str] = dataclasses.field(default_factory=set)
    outputs: set[str] = dataclasses.field(default_factory=set)
    sinks: set[str] = dataclasses.field(default_factory=set)
    unknown: str | None = None

    def add_flow(self, name: str, relation: Any) -> None:
        """Takes in the plan of a flow.

        Args:
            name: of the flow.
            relation: as protobuf, pyspark.sql.connect.proto.Relation.

        Raises:
            FlowFault: an option of a read is wrong.
        """
        name = flow_name(name)
        streaming = False
        for message in _messages(relation):
            kind = message.DESCRIPTOR.full_name
            if kind == SQL:
                self.unknown = f"flow {name} reads by SQL"
            elif kind == READ:
                streaming |= message.is_streaming
                self._add_read(name, message)
        text = str(relation).lower()
        # A stream without new records has no batch, whatever its functions would do.
        if (found := TIMERS.search(text) or (None if streaming else CHANGES_BY_ITSELF.search(text))) is not None:
            self.unknown = f"flow {name} may change by itself ({found[0]})"

    def _add_read(self, flow: str, read: Any) -> None:
        if read.WhichOneof("read_type") == "named_table":
            self.tables.add(read.named_table.unparsed_identifier.replace("`", ""))
        elif read.data_source.format.lower() == FORMAT:
            try:
                self.kafka.append((flow, source_options(dict(read.data_source.options), streaming=read.is_streaming)))
            except ConfigError as error:
                raise FlowFault(flow, str(error)) from None
        else:
            self.unknown = f"flow {flow} reads {read.data_source.format or 'files'}"

    def add_output(self, name: str) -> None:
        """Takes in a table or a view of the pipeline."""
        self.outputs.add(name.replace("`", ""))

    def add_sink(self, name: str, kind: str | None, options: Mapping[str, str]) -> None:
        """Takes in a sink.

        Raises:
            FlowFault: an option is wrong.
        """
        if (kind or "").lower() != FORMAT:
            return
        try:
            topic = sink_options(dict(options)).topic
        except ConfigError as error:
            raise FlowFault(flow_name(name), str(error)) from None
        if topic is not None:
            self.sinks.add(topic)

    def check_topics(self, tolerant: bool) -> None:
        """Asks Kafka for the topics that flows name.

        Args:
            tolerant: a read that tolerates loss (onDataLoss) may name a topic that was deleted.

        Raises:
            FlowFault: one does not exist and no flow writes it; with the nearest name.
        """
        asked: dict[tuple[tuple[str, str], ...], set[str]] = {}
        for flow, options in self.kafka:
            named = dict.fromkeys(options.subscribe or [topic for topic, _ in options.assign])
            key = tuple(sorted(options.client.items()))
            if tolerant and options.on_data_loss != "fail":
                continue
            if named and key not in asked:
                with _source(options) as source:
                    try:
                        asked[key] = set(source.admin().list_topics(include_internal=True))
                    except ConfigError:
                        raise
                    except KafkaError as error:
                        log.warning("flow %s: its topics cannot be checked: %s", flow, error)
                        asked[key] = set(named)
            for topic in named:
                if topic not in asked[key] and topic not in self.sinks:
                    nearest = difflib.get_close_matches(topic, asked[key], n=1, cutoff=0.6)
                    hint = f"; did you mean {nearest[0]}?" if nearest else ""
                    raise FlowFault(flow, f"there is no topic {topic!r} that this user may see, which subscribe or assign names{hint}")

    def why_unknown(self) -> str | None:
        """Why `News` cannot know whether there is something new; None if it can."""
        foreign = self.tables - self.outputs
        return self.unknown or (f"the table {min(foreign)} is not of the pipeline" if foreign else None)


class _source:
    """An `OffsetSource` for a block."""

    def __init__(self, options: SourceOptions) -> None:
        from kafkacore.spark.clients import OffsetSource

        self._source = OffsetSource(options)

    def __enter__(self) -> OffsetSource:
        return self._source

    def __exit__(self, *_: object) -> None:
        self._source.close()


class News:
    """Whether the topics of a pipeline's flows have got something since an update began. Keeps its connections; must be closed."""

    def __init__(self) -> None:
        self._sources: dict[Any, OffsetSource] = {}
        self._before: dict[Any, dict[Partition, int]] | None = None
        self._told: str | None = None

    def began(self, reads: Reads) -> None:
        """Remembers the ends of all topics: an update with these reads is about to begin."""
        self._before = None
        why = reads.why_unknown()
        if why is not None:
            if why != self._told:
                log.info("every update is run, for it cannot be known whether there is something new: %s", why)
            self._told = why
            return
        wanted = {_key(options): options for _, options in reads.kafka}
        for key in [key for key in self._sources if key not in wanted]:
            self._sources.pop(key).close()
        from kafkacore.spark.clients import OffsetSource

        for key in wanted.keys() - self._sources.keys():
            self._sources[key] = OffsetSource(dataclasses.replace(wanted[key], outage_timeout_ms=0))     # Ctrl+C is not kept waiting
        self._before = self._ends()

    def is_there(self) -> bool:
        """Whether another update may find something: new records, partitions or topics, or Kafka does not say."""
        return self._before is None or self._before != self._ends()

    def _ends(self) -> dict[Any, dict[Partition, int]] | None:
        try:
            return {key: source.latest(source.partitions()) for key, source in self._sources.items()}
        except KafkaError as error:
            log.info("an update is run, for Kafka does not say whether there is something new: %s", error)
            return None

    def close(self) -> None:
        """Closes the connections."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()
        self._before = None


def _key(options: SourceOptions) -> Any:
    """What the ends of a read depend on."""
    return tuple(sorted(options.client.items())), options.subscribe, options.assign, options.pattern


def _messages(message: Any) -> Iterator[Any]:
    """A protobuf message and all that it holds."""
    left = [message]
    while left:
        at = left.pop()
        yield at
        for field, value in at.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                left += _of_map(value)
            elif isinstance(value, Iterable) and not hasattr(value, "DESCRIPTOR"):
                left += value
            else:
                left.append(value)


def _of_map(value: Mapping[Any, Any]) -> list[Any]:
    return [each for each in value.values() if hasattr(each, "ListFields")]


def reading(base: type) -> Any:
    """A registry of this kind that also takes down what flows read, in `reads`: for one that hands plans to Spark Connect."""
    from pyspark.pipelines.output import Sink

    class Registry(base):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.reads = Reads()

        def register_output(self, output: Any) -> None:
            if isinstance(output, Sink):
                self.reads.add_sink(output.name, output.format, output.options)
            else:
                self.reads.add_output(output.name)
            super().register_output(output)

        def register_flow(self, flow: Any) -> None:
            def noted() -> Any:
                frame = flow.func()
                self.reads.add_flow(flow.name, frame._plan.plan(self._client))
                return frame

            super().register_flow(dataclasses.replace(flow, func=noted))

        def register_auto_cdc_flow(self, flow: Any) -> None:
            self.reads.tables.add(flow.source.replace("`", ""))
            super().register_auto_cdc_flow(flow)

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            self.reads.unknown = f"{file_path} is SQL"
            super().register_sql(sql_text, file_path)

    return Registry
