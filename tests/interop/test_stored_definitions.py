"""Holds the records of coordinators' topics against the definitions in Kafka's own jars."""

import json
import re
import sys
import zipfile
from pathlib import Path

import pytest

from kafkacore.protocol import stored
from tests.kit.kafka_server import jar_directory

sys.path.append(str(Path(__file__).parent.parent / "protocol"))
from protocol_kit import STORED_MESSAGES, name_of, versions_of
from test_tables import compare

pytestmark = pytest.mark.kafka

KINDS = [kind for kind in STORED_MESSAGES if kind.__name__.endswith(("Key", "Value"))]


@pytest.fixture(scope="module")
def definitions():
    found = {}
    for jar in jar_directory().glob("kafka-*-coordinator-4*.jar"):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.M)
                    found[Path(name).stem] = json.loads(text)
    return found


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_a_stored_message_says_what_kafkas_definition_says(kind, definitions):
    if kind.__module__ != stored.__name__ or kind.__name__ not in definitions:
        pytest.skip("defined elsewhere")
    official = definitions[kind.__name__]
    for field in official["fields"]:
        if "versions" not in field:  # tagged fields of transactions; Kafka leaves them out of version 0 by hand
            field |= {"versions": field["taggedVersions"], "ignorable": True}
    if kind.__name__.endswith("Key"):
        # What Kafka calls the key's API is the version it writes before it; it writes 0 and 1 for the two kinds of offset keys.
        assert kind.MAX_VERSION == official["apiKey"]
        for struct_field in official["fields"]:
            struct_field["versions"] = "0+"
        compare(kind, official, set(versions_of(kind)))
    else:
        low, _, high = official["validVersions"].partition("-")
        assert (kind.MIN_VERSION, kind.MAX_VERSION) == (int(low), int(high or low))
        compare(kind, official, set(versions_of(kind)))


def test_every_kind_of_record_of_consumer_groups_has_its_table(definitions):
    wanted = {name for name in definitions if name.startswith(("ConsumerGroup", "OffsetCommit", "GroupMetadata"))}
    replaced = {"ConsumerGroupPartitionMetadataValue"}  # not written since Kafka 4.1, and nothing in it is needed
    assert wanted - {kind.__name__ for kind in KINDS} == replaced
