"""Spark on a cluster that wants to know who is there: batch, stream and sink, the password known to files alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacore.config_security import sasl_listener
from kafkacore.testing import EmbeddedCluster

PASSWORD = 'cor"rect\\horse;'


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config=sasl_listener({"alice": PASSWORD})) as running:
        yield running


def options(cluster: EmbeddedCluster, secret: Path) -> dict[str, str]:
    module = "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="alice" password="secret://file{secret}";',
    }


def test_all_of_it(spark: Any, secured: EmbeddedCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD + "\n")
    known = options(secured, secret)
    secured.create_topic("in", partitions=2)
    written = spark.range(200).selectExpr("cast(id as string) as key", "cast(id * id as string) as value")
    written.write.mode("append").format("kafkacore").options(**known, topic="in").save()

    read = spark.read.format("kafkacore").options(**known, subscribe="in").load()
    assert read.count() == 200
    read.explain(True)
    plan = capfd.readouterr().out + repr(read)
    assert "rect" not in plan

    stream = spark.readStream.format("kafkacore").options(**known, subscribe="in", startingOffsets="earliest").load()
    query = (
        stream.select("key", "value")
        .writeStream.format("kafkacore")
        .options(**known, topic="out", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert query.exception() is None
    assert spark.read.format("kafkacore").options(**known, subscribe="out").load().count() == 200
    everything = "".join(file.read_text(errors="replace") for file in (tmp_path / "checkpoint").rglob("*") if file.is_file())
    assert "rect" not in everything

    secret.write_text("guessed-wrong")
    with pytest.raises(Exception, match=r"SCRAM-SHA-512 authentication of user 'alice' by .* failed") as caught:
        spark.read.format("kafkacore").options(**known, subscribe="in", groupIdPrefix="other").load().count()  # no client that is in
    assert "guessed-wrong" not in str(caught.value)
