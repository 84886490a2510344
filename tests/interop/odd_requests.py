"""Odd requests, made from Kafka's own message definitions: every field of a good request set to what nobody would send.

The definitions are those inside Kafka's jar, and the encoder below is made for this: it writes what no client can be made to write (null
where null is not allowed, two of what may stand once). Nothing of the project's protocol room takes part in a request.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.kafka_server import VERSION

Body = dict[str, Any]
UNKNOWN_ID = bytes(range(16))
FORMATS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d", "bool": ">?"}
LIMITS = {"int8": 127, "int16": 32767, "int32": 2**31 - 1, "int64": 2**63 - 1}
SKIPPED = {"MaxWaitMs", "Listeners"}  # a broker that waits is no difference; an odd listener of a voter ends Kafka's process


class Schema(NamedTuple):
    """A request as Kafka defines it."""

    name: str
    api_key: int
    fields: list[Body]
    flexible: range
    structs: dict[str, list[Body]]


def versions(text: str) -> range:
    """ "3+", "0-4", "2" or "none" as a range."""
    if text == "none":
        return range(0)
    first, _, last = text.rstrip("+").partition("-")
    return range(int(first), (int(last) if last else 32767 if text.endswith("+") else int(first)) + 1)


def load_schemas(jars: Path) -> dict[int, Schema]:
    """The requests of kafka-clients, by API key."""
    found = {}
    with zipfile.ZipFile(jars / f"kafka-clients-{VERSION}.jar") as jar:
        for entry in jar.namelist():
            if re.fullmatch(r"common/message/\w+Request\.json", entry):
                text = re.sub(r"(?m)(^|(?<=[,\[{\]}\"\d]))\s*//.*$", "", jar.read(entry).decode())
                made = json.loads(text)
                if made["validVersions"] == "none":
                    continue
                structs = {each["name"]: each["fields"] for each in made.get("commonStructs", [])}
                name = made["name"].removesuffix("Request")
                found[made["apiKey"]] = Schema(name, made["apiKey"], made["fields"], versions(made["flexibleVersions"]), structs)
    return found


# ---- encoding


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


class Encoder:
    """One request in one version."""

    def __init__(self, schema: Schema, version: int) -> None:
        self.schema = schema
        self.number = 0
        self.version = version
        self.flexible = version in schema.flexible

    def frame(self, body: Body, correlation_id: int, number: int) -> bytes:
        """The whole request with its size; `{n}` in its strings becomes the number, so that no request meets what another one made."""
        self.number = number
        header = struct.pack(">hhih3s", self.schema.api_key, self.version, correlation_id, 3, b"odd") + (b"\0" if self.flexible else b"")
        whole = header + self.struct(self.schema.fields, body)
        return struct.pack(">i", len(whole)) + whole

    def struct(self, fields: list[Body], body: Body) -> bytes:
        here = [field for field in fields if self.version in versions(field["versions"])]
        plain = [field for field in here if "tag" not in field]
        out = b"".join(self.value(field, field["type"], body.get(field["name"], self.default(field))) for field in plain)
        if not self.flexible:
            return out
        tagged = sorted((field["tag"], field) for field in here if "tag" in field and field["name"] in body)
        out += varint(len(tagged))
        for tag, field in tagged:
            content = self.value(field, field["type"], body[field["name"]])
            out += varint(tag) + varint(len(content)) + content
        return out

    def members(self, field: Body, kind: str) -> list[Body]:
        found: list[Body] = field.get("fields") or self.schema.structs[kind]
        return found

    def default(self, field: Body) -> Any:
        kind, given = field["type"], field.get("default")
        if given in ("null", None) and "default" in field:
            return None
        if kind in LIMITS or kind == "uint16":
            return int(str(given or 0), 0)
        if kind == "bool":
            return str(given).lower() == "true"
        if kind == "string":
            return given or ""
        if kind.startswith("[]"):
            return []
        return {"float64": 0.0, "uuid": bytes(16), "bytes": b"", "records": None}.get(kind, {})

    def length(self, nbytes: int | None, wide: str) -> bytes:
        if self.flexible:
            return varint(0 if nbytes is None else nbytes + 1)
        return struct.pack(wide, -1 if nbytes is None else nbytes)

    def value(self, field: Body, kind: str, value: Any, inside: bool = False) -> bytes:
        if kind.startswith("[]"):
            if value is None:
                return self.length(None, ">i")
            return self.length(len(value), ">i") + b"".join(self.value(field, kind[2:], each, inside=True) for each in value)
        if kind in FORMATS:
            return struct.pack(FORMATS[kind], value)
        if kind == "uuid":
            return bytes(value)
        if kind in ("string", "bytes", "records"):
            data = value.replace("{n}", str(self.number)).encode() if isinstance(value, str) else value
            return self.length(None if data is None else len(data), ">h" if kind == "string" else ">i") + (data or b"")
        if "nullableVersions" in field and not inside:
            return b"\xff" if value is None else b"\x01" + self.struct(self.members(field, kind), value)
        return self.struct(self.members(field, kind), value)

    # ---- what nobody would send

    def oddities(self, body: Body) -> Iterator[tuple[str, Body]]:
        """The body as it is, and with each of its fields made odd; with names for what was done."""
        yield "as it is", body
        yield from self._of_struct(self.schema.fields, body)

    def _of_struct(self, fields: list[Body], body: Body) -> Iterator[tuple[str, Body]]:
        for field in fields:
            name = field["name"]
            if self.version in versions(field["versions"]) and name not in SKIPPED:
                for label, value in self._of_value(field, field["type"], body.get(name, self.default(field)), False):
                    if name.lower() != "timeoutms" or value not in (1, 7):  # whether Kafka is done by then is chance
                        yield name + label, {**body, name: value}

    def _of_value(self, field: Body, kind: str, value: Any, inside: bool) -> Iterator[tuple[str, Any]]:
        tagged = "tag" in field
        if kind.startswith("[]"):
            yield "=[]", []
            if not tagged:
                yield "=null", None
            if value:
                yield "=twice", [value[0], *value]
                for label, each in self._of_value(field, kind[2:], value[0], True):
                    yield "[0]" + label, [each, *value[1:]]
        elif kind in LIMITS:
            for odd in (-1, -2, 0, 1, 7, LIMITS[kind]):
                if odd != value:
                    yield f"={odd}", odd
        elif kind == "float64":
            yield from ((f"={odd}", odd) for odd in (-1.0, 0.0, 1e300))
        elif kind == "bool":
            yield f"={not value}", not value
        elif kind == "uuid":
            yield "=zero", bytes(16)
            yield "=unknown", UNKNOWN_ID
        elif kind == "string":
            yield from ((f"={odd!r}", odd) for odd in ("", "no such thing {n}", "odd-unknown-{n}", "é" * 130 + "{n}"))
            if not tagged:
                yield "=null", None
        elif kind in ("bytes", "records"):
            yield "=empty", b""
            yield "=null", None
            yield "=garbage", b"\x00\x01garbage"
            if kind == "records" and value:
                yield "=cut", value[:-1]
                yield "=broken", value[:-1] + b"\xfe"
                yield "=two batches", value + value
        elif isinstance(value, dict):
            yield from self._of_struct(self.members(field, kind), value)
            if "nullableVersions" in field and not inside:
                yield "=null", None
        elif value is None and not inside and "nullableVersions" in field:
            yield "=default", {each["name"]: self.default(each) for each in self.members(field, kind)}


class World(NamedTuple):
    """What was prepared in a cluster, the same in all clusters but for the ids."""

    topic_id: bytes
    batch: bytes
    producer_id: int
    transactional_producer_id: int


TOPIC, DELETED_FROM, GROUP, TRANSACTIONAL_ID = "odd-topic", "odd-deleted-from", "odd-group", "odd-transactional"


def bases(world: World) -> dict[str, Body]:
    """A good request of every API."""
    ids = {"TransactionalId": TRANSACTIONAL_ID, "ProducerId": world.transactional_producer_id, "ProducerEpoch": 0}
    return {
        "Produce": {
            "Acks": -1,
            "TimeoutMs": 1000,
            "TopicData": [{"Name": TOPIC, "TopicId": world.topic_id, "PartitionData": [{"Index": 1, "Records": world.batch}]}],
        },
        "Fetch": {
            "ReplicaId": -1,
            "MaxWaitMs": 0,
            "MinBytes": 0,
            "Topics": [
                {
                    "Topic": TOPIC,
                    "TopicId": world.topic_id,
                    "Partitions": [{"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}],
                }
            ],
        },
        "ListOffsets": {
            "ReplicaId": -1,
            "TimeoutMs": 1000,
            "Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}],
        },
        "Metadata": {"Topics": [{"Name": TOPIC, "TopicId": bytes(16)}], "AllowAutoTopicCreation": False},
        "OffsetForLeaderEpoch": {
            "ReplicaId": -1,
            "Topics": [{"Topic": TOPIC, "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0}]}],
        },
        "FindCoordinator": {"Key": GROUP, "KeyType": 0, "CoordinatorKeys": [GROUP]},
        "ListGroups": {"StatesFilter": ["Stable"], "TypesFilter": ["classic"]},
        "JoinGroup": {
            "GroupId": "odd-join-{n}",
            "SessionTimeoutMs": 10_000,
            "RebalanceTimeoutMs": 10_000,
            "ProtocolType": "consumer",
            "Protocols": [{"Name": "range", "Metadata": b"\0\0\0\0\0\0\xff\xff\xff\xff"}],
        },
        "SyncGroup": {
            "GroupId": GROUP,
            "GenerationId": 1,
            "MemberId": "m",
            "ProtocolType": "consumer",
            "ProtocolName": "range",
            "Assignments": [{"MemberId": "m", "Assignment": b"a"}],
        },
        "Heartbeat": {"GroupId": GROUP, "GenerationId": 1, "MemberId": "m"},
        "LeaveGroup": {"GroupId": GROUP, "MemberId": "m", "Members": [{"MemberId": "m", "GroupInstanceId": None}]},
        "OffsetCommit": {
            "GroupId": "odd-commit-{n}",
            "Topics": [
                {
                    "Name": TOPIC,
                    "TopicId": world.topic_id,
                    "Partitions": [{"PartitionIndex": 1, "CommittedOffset": 3, "CommittedMetadata": "here"}],
                }
            ],
        },
        "OffsetFetch": {
            "GroupId": GROUP,
            "Topics": [{"Name": TOPIC, "TopicId": world.topic_id, "PartitionIndexes": [0, 1, 9]}],
            "Groups": [{"GroupId": GROUP, "Topics": [{"Name": TOPIC, "TopicId": world.topic_id, "PartitionIndexes": [0, 1, 9]}]}],
        },
        "OffsetDelete": {"GroupId": GROUP, "Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 1}]}]},
        "DescribeGroups": {"Groups": [GROUP]},
        "DeleteGroups": {"GroupsNames": ["odd-delete-{n}"]},
        "ConsumerGroupHeartbeat": {
            "GroupId": "odd-consumer-{n}",
            "MemberId": "member-{n}",
            "MemberEpoch": 0,
            "RebalanceTimeoutMs": 10_000,
            "SubscribedTopicNames": [TOPIC],
            "TopicPartitions": [],
        },
        "ConsumerGroupDescribe": {"GroupIds": [GROUP]},
        "InitProducerId": {"TransactionalId": "odd-tx-{n}", "TransactionTimeoutMs": 60_000},
        "AddPartitionsToTxn": {
            "Transactions": [{**ids, "VerifyOnly": False, "Topics": [{"Name": TOPIC, "Partitions": [1]}]}],
            **{f"V3AndBelow{name}": value for name, value in ids.items()},
            "V3AndBelowTopics": [{"Name": TOPIC, "Partitions": [1]}],
        },
        "AddOffsetsToTxn": {**ids, "GroupId": GROUP},
        "TxnOffsetCommit": {
            **ids,
            "GroupId": GROUP,
            "Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 3, "CommittedMetadata": "here"}]}],
        },
        "EndTxn": {**ids, "Committed": True},
        "WriteTxnMarkers": {
            "Markers": [
                {
                    "ProducerId": world.producer_id,
                    "ProducerEpoch": 0,
                    "TransactionResult": False,
                    "Topics": [{"Name": TOPIC, "PartitionIndexes": [1]}],
                }
            ]
        },
        "DescribeTransactions": {"TransactionalIds": [TRANSACTIONAL_ID]},
        "ListTransactions": {"StateFilters": ["Dead"], "ProducerIdFilters": []},
        "DescribeProducers": {"Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]},
        "CreateTopics": {
            "Topics": [
                {
                    "Name": "odd-create-{n}",
                    "NumPartitions": 1,
                    "ReplicationFactor": 1,
                    "Configs": [{"Name": "retention.ms", "Value": "1000"}],
                }
            ],
            "timeoutMs": 10_000,
        },
        "DeleteTopics": {
            "Topics": [{"Name": "odd-delete-{n}", "TopicId": bytes(16)}],
            "TopicNames": ["odd-delete-{n}"],
            "TimeoutMs": 10_000,
        },
        "CreatePartitions": {"Topics": [{"Name": TOPIC, "Count": 2, "Assignments": None}], "TimeoutMs": 10_000, "ValidateOnly": True},
        "DeleteRecords": {"Topics": [{"Name": DELETED_FROM, "Partitions": [{"PartitionIndex": 0, "Offset": 1}]}], "TimeoutMs": 1000},
        "DescribeConfigs": {
            "Resources": [{"ResourceType": 2, "ResourceName": TOPIC, "ConfigurationKeys": ["retention.ms", "cleanup.policy"]}]
        },
        "AlterConfigs": {
            "Resources": [{"ResourceType": 2, "ResourceName": DELETED_FROM, "Configs": [{"Name": "retention.ms", "Value": "-1"}]}]
        },
        "IncrementalAlterConfigs": {
            "Resources": [
                {
                    "ResourceType": 2,
                    "ResourceName": DELETED_FROM,
                    "Configs": [{"Name": "retention.ms", "ConfigOperation": 0, "Value": "-1"}],
                }
            ]
        },
        "DescribeCluster": {},
        "DescribeLogDirs": {"Topics": [{"Topic": DELETED_FROM, "Partitions": [0]}]},
        "ElectLeaders": {"TopicPartitions": [{"Topic": TOPIC, "Partitions": [0]}], "TimeoutMs": 1000},
        "AlterPartitionReassignments": {
            "TimeoutMs": 1000,
            "Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 0, "Replicas": [1]}]}],
        },
        "ListPartitionReassignments": {"TimeoutMs": 1000, "Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]},
        "DescribeTopicPartitions": {"Topics": [{"Name": TOPIC}], "Cursor": None},
        "ListConfigResources": {"ResourceTypes": [16]},
        "DescribeClientQuotas": {"Components": [{"EntityType": "client-id", "MatchType": 0, "Match": "odd"}]},
        "AlterClientQuotas": {
            "Entries": [
                {
                    "Entity": [{"EntityType": "client-id", "EntityName": "odd-client"}],
                    "Ops": [{"Key": "producer_byte_rate", "Value": 1000.0}],
                }
            ],
            "ValidateOnly": True,
        },
        "DescribeAcls": {"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1},
        "CreateAcls": {
            "Creations": [{"ResourceType": 2, "ResourceName": "t", "Principal": "User:a", "Host": "*", "Operation": 3, "PermissionType": 3}]
        },
        "DeleteAcls": {"Filters": [{"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}]},
        "ApiVersions": {"ClientSoftwareName": "odd", "ClientSoftwareVersion": "1.0"},
        "SaslHandshake": {"Mechanism": "PLAIN"},
        "SaslAuthenticate": {"AuthBytes": b"\0odd\0odd"},
        "CreateDelegationToken": {
            "OwnerPrincipalType": "User",
            "OwnerPrincipalName": "odd",
            "Renewers": [{"PrincipalType": "User", "PrincipalName": "other"}],
            "MaxLifetimeMs": -1,
        },
        "RenewDelegationToken": {"Hmac": b"odd", "RenewPeriodMs": 1000},
        "ExpireDelegationToken": {"Hmac": b"odd", "ExpiryTimePeriodMs": 1000},
        "DescribeDelegationToken": {"Owners": [{"PrincipalType": "User", "PrincipalName": "odd"}]},
        "AddRaftVoter": {
            "ClusterId": None,
            "TimeoutMs": 1000,
            "VoterId": 9,
            "VoterDirectoryId": UNKNOWN_ID,
            "Listeners": [{"Name": "CONTROLLER", "Host": "127.0.0.1", "Port": 1}],
        },
        "RemoveRaftVoter": {"ClusterId": None, "VoterId": 9, "VoterDirectoryId": UNKNOWN_ID},
        "DescribeUserScramCredentials": {"Users": [{"Name": "odd"}]},
    }


NAMES = [*bases(World(b"", b"", -1, -1))]
