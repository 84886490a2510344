"""Holds the tables against Kafka's own message definitions, as the kafka-python wheel ships them.

Compared per field: effective versions (with those of its parents), type, nullability, tag, default, ignorable, and the flexible versions.
Class names, and where a field's range reaches beyond its message's, are ours to choose.
"""

import json
import re
from importlib import resources

from protocol_kit import BETWEEN_BROKERS, MESSAGES, STORED_MESSAGES, name_of, versions_of

from kafkacore.protocol.schema import Struct, Versions, WireType
from tests.kit.rows import each_row

DEFINITIONS = resources.files("kafka.protocol.schemas.resources")

NO_DEFINITION = {"ConsumerGroupHeartbeatRequest", "ConsumerGroupHeartbeatResponse"} | {
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    *BETWEEN_BROKERS,
    *(kind.__name__ for kind in STORED_MESSAGES if not kind.__name__.startswith("ConsumerProtocol")),
}
"""Messages whose definition the wheel lacks; tests/interop/test_stored_definitions.py has those that are stored."""


def definition(name):
    text = (DEFINITIONS / f"{name}.json").read_text()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def official_default(field, is_struct):
    default, kind = field.get("default"), field["type"]
    if default == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return "empty"
    if is_struct:
        return "struct"
    if kind.startswith(("int", "uint")):
        return int(str(default or 0), 0)
    if kind == "bool":
        return default in ("true", True)
    return {"float64": 0.0, "string": default or "", "bytes": b"", "uuid": bytes(16)}[kind]


def official_rows(fields, common, present, path=""):
    for field in fields:
        here = path + snake(field["name"])
        kind = field["type"].removeprefix("[]")
        versions = {v for v in present if Versions.parse(field["versions"]).has(v)}
        if not versions:
            continue
        inner = field.get("fields") or common.get(kind)
        nullable = Versions.parse(field.get("nullableVersions", ""))
        yield (
            here,
            {
                "versions": versions,
                "type": "struct" if inner else kind,
                "array": field["type"].startswith("[]"),
                "nullable": {v for v in versions if nullable.has(v)},
                "tag": field.get("tag"),
                "tagged": {v for v in versions if Versions.parse(field.get("taggedVersions", "")).has(v)},
                "default": official_default(field, inner is not None),
                "ignorable": bool(field.get("ignorable")),
                "classic": field.get("flexibleVersions") == "none",
            },
        )
        if inner:
            yield from official_rows(inner, common, versions, here + ".")


def our_rows(kind, present, path=""):
    for name, field in kind.FIELDS.items():
        versions = {v for v in present if field.versions.has(v)}
        is_struct = not isinstance(field.type, WireType)
        default = "made" if field.fresh() else field.shared_default()
        if default == "made":
            default = "empty" if field.is_array else "struct"
        elif isinstance(default, Struct):
            default = "struct"
        yield (
            path + name,
            {
                "versions": versions,
                "type": "struct" if is_struct else field.type.name,
                "array": field.is_array,
                "nullable": {v for v in versions if field.nullable.has(v)},
                "tag": field.tag,
                "tagged": {v for v in versions if field.tagged.has(v)},
                "default": default,
                "ignorable": field.ignorable,
                "classic": not field.flexible,
            },
        )
        if is_struct:
            yield from our_rows(field.type, versions, path + name + ".")


@each_row("kind", [m for m in MESSAGES if m.__name__ not in NO_DEFINITION], ids=name_of)
def test_a_table_says_what_kafka_says(kind):
    official = definition(kind.__name__)
    valid = Versions.parse(official["validVersions"])
    if official.get("type") == "request":
        assert kind.OLDEST_SERVED == valid.first
    # The tables keep what Kafka 4 dropped (KIP-896).
    assert (kind.MIN_VERSION, kind.MAX_VERSION) == (0 if "apiKey" in official else valid.first, valid.last)
    assert kind.API_KEY == official.get("apiKey", -1)
    compare(kind, official, set(versions_of(kind)))


def compare(kind, official, present):
    """Field by field, in the versions given."""
    common = {struct["name"]: struct["fields"] for struct in official.get("commonStructs", [])}

    def learn(fields):
        for field in fields:
            if "fields" in field:
                common.setdefault(field["type"].removeprefix("[]"), field["fields"])
                learn(field["fields"])

    learn(official["fields"])
    flexible = official["flexibleVersions"]
    assert kind.FLEXIBLE_VERSION == (None if flexible == "none" else Versions.parse(flexible).first)
    ours, theirs = list(our_rows(kind, present)), list(official_rows(official["fields"], common, present))
    assert [path for path, _ in ours] == [path for path, _ in theirs]
    for (path, our_row), (_, their_row) in zip(ours, theirs, strict=True):
        assert our_row == their_row, path


def test_every_definition_has_its_table():
    defined = {path.name.removesuffix(".json") for path in DEFINITIONS.iterdir() if path.name.endswith(".json")}
    defined -= {"RequestHeader", "ResponseHeader"}  # test_golden.py
    here = {kind.__name__ for kind in MESSAGES}
    assert defined - here == set()
    assert here - defined == NO_DEFINITION
