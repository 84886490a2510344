"""Odd requests, made from Kafka's own message definitions: every field of a good request set to what nobody would send.

The definitions are those inside Kafka's jar, and the encoder below is made for this: it writes what no client can be made to write (null
where null is not allowed, two of what may stand once). Nothing of the project's protocol room takes part in a request.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
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


Base = Callable[["World"], Body]
BASES: dict[str, Base] = {}


class World(NamedTuple):
    """What was prepared in a cluster, the same in all clusters but for the ids."""

    topic_id: bytes
    batch: bytes
    producer_id: int
    transactional_producer_id: int


def base(fn: Base) -> Base:
    BASES["".join(word.capitalize() for word in fn.__name__.split("_"))] = fn
    return fn


TOPIC, DELETED_FROM, GROUP, TRANSACTIONAL_ID = "odd-topic", "odd-deleted-from", "odd-group", "odd-transactional"


@base
def produce(world: World) -> Body:
    partition = {"Index": 1, "Records": world.batch}
    return {"Acks": -1, "TimeoutMs": 1000, "TopicData": [{"Name": TOPIC, "TopicId": world.topic_id, "PartitionData": [partition]}]}


@base
def fetch(world: World) -> Body:
    partition = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}
    topic = {"Topic": TOPIC, "TopicId": world.topic_id, "Partitions": [partition]}
    return {"ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 0, "Topics": [topic]}


@base
def list_offsets(world: World) -> Body:
    return {"ReplicaId": -1, "TimeoutMs": 1000, "Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]}


@base
def metadata(world: World) -> Body:
    return {"Topics": [{"Name": TOPIC, "TopicId": bytes(16)}], "AllowAutoTopicCreation": False}


@base
def offset_for_leader_epoch(world: World) -> Body:
    return {"ReplicaId": -1, "Topics": [{"Topic": TOPIC, "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0}]}]}


@base
def find_coordinator(world: World) -> Body:
    return {"Key": GROUP, "KeyType": 0, "CoordinatorKeys": [GROUP]}


@base
def list_groups(world: World) -> Body:
    return {"StatesFilter": ["Stable"], "TypesFilter": ["classic"]}


@base
def join_group(world: World) -> Body:
    protocol = {"Name": "range", "Metadata": b"\0\0\0\0\0\0\xff\xff\xff\xff"}
    return {
        "GroupId": "odd-join-{n}",
        "SessionTimeoutMs": 10_000,
        "RebalanceTimeoutMs": 10_000,
        "ProtocolType": "consumer",
        "Protocols": [protocol],
    }


@base
def sync_group(world: World) -> Body:
    assignment = {"MemberId": "m", "Assignment": b"a"}
    protocol = {"ProtocolType": "consumer", "ProtocolName": "range"}
    return {"GroupId": GROUP, "GenerationId": 1, "MemberId": "m", **protocol, "Assignments": [assignment]}


@base
def heartbeat(world: World) -> Body:
    return {"GroupId": GROUP, "GenerationId": 1, "MemberId": "m"}


@base
def leave_group(world: World) -> Body:
    return {"GroupId": GROUP, "MemberId": "m", "Members": [{"MemberId": "m", "GroupInstanceId": None}]}


@base
def offset_commit(world: World) -> Body:
    partition = {"PartitionIndex": 1, "CommittedOffset": 3, "CommittedMetadata": "here"}
    topic = {"Name": TOPIC, "TopicId": world.topic_id, "Partitions": [partition]}
    return {"GroupId": "odd-commit-{n}", "Topics": [topic]}


@base
def offset_fetch(world: World) -> Body:
    topic = {"Name": TOPIC, "TopicId": world.topic_id, "PartitionIndexes": [0, 1, 9]}
    return {"GroupId": GROUP, "Topics": [topic], "Groups": [{"GroupId": GROUP, "Topics": [topic]}]}


@base
def offset_delete(world: World) -> Body:
    return {"GroupId": GROUP, "Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 1}]}]}


@base
def describe_groups(world: World) -> Body:
    return {"Groups": [GROUP]}


@base
def delete_groups(world: World) -> Body:
    return {"GroupsNames": ["odd-delete-{n}"]}


@base
def consumer_group_heartbeat(world: World) -> Body:
    return {
        "GroupId": "odd-consumer-{n}",
        "MemberId": "member-{n}",
        "MemberEpoch": 0,
        "RebalanceTimeoutMs": 10_000,
        "SubscribedTopicNames": [TOPIC],
        "TopicPartitions": [],
    }


@base
def consumer_group_describe(world: World) -> Body:
    return {"GroupIds": [GROUP]}


@base
def init_producer_id(world: World) -> Body:
    return {"TransactionalId": "odd-tx-{n}", "TransactionTimeoutMs": 60_000}


@base
def add_partitions_to_txn(world: World) -> Body:
    ids = {"TransactionalId": TRANSACTIONAL_ID, "ProducerId": world.transactional_producer_id, "ProducerEpoch": 0}
    topics = [{"Name": TOPIC, "Partitions": [1]}]
    return {
        "Transactions": [{**ids, "VerifyOnly": False, "Topics": topics}],
        **{f"V3AndBelow{name}": value for name, value in ids.items()},
        "V3AndBelowTopics": topics,
    }


@base
def add_offsets_to_txn(world: World) -> Body:
    ids = {"TransactionalId": TRANSACTIONAL_ID, "ProducerId": world.transactional_producer_id, "ProducerEpoch": 0}
    return {**ids, "GroupId": GROUP}


@base
def txn_offset_commit(world: World) -> Body:
    partition = {"PartitionIndex": 0, "CommittedOffset": 3, "CommittedMetadata": "here"}
    ids = {"TransactionalId": TRANSACTIONAL_ID, "ProducerId": world.transactional_producer_id, "ProducerEpoch": 0}
    return {**ids, "GroupId": GROUP, "Topics": [{"Name": TOPIC, "Partitions": [partition]}]}


@base
def end_txn(world: World) -> Body:
    ids = {"TransactionalId": TRANSACTIONAL_ID, "ProducerId": world.transactional_producer_id, "ProducerEpoch": 0}
    return {**ids, "Committed": True}


@base
def write_txn_markers(world: World) -> Body:
    topics = [{"Name": TOPIC, "PartitionIndexes": [1]}]
    return {"Markers": [{"ProducerId": world.producer_id, "ProducerEpoch": 0, "TransactionResult": False, "Topics": topics}]}


@base
def describe_transactions(world: World) -> Body:
    return {"TransactionalIds": [TRANSACTIONAL_ID]}


@base
def list_transactions(world: World) -> Body:
    return {"StateFilters": ["Dead"], "ProducerIdFilters": []}


@base
def describe_producers(world: World) -> Body:
    return {"Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]}


@base
def create_topics(world: World) -> Body:
    config = {"Name": "retention.ms", "Value": "1000"}
    topic = {"Name": "odd-create-{n}", "NumPartitions": 1, "ReplicationFactor": 1, "Configs": [config]}
    return {"Topics": [topic], "timeoutMs": 10_000}


@base
def delete_topics(world: World) -> Body:
    return {"Topics": [{"Name": "odd-delete-{n}", "TopicId": bytes(16)}], "TopicNames": ["odd-delete-{n}"], "TimeoutMs": 10_000}


@base
def create_partitions(world: World) -> Body:
    return {"Topics": [{"Name": TOPIC, "Count": 2, "Assignments": None}], "TimeoutMs": 10_000, "ValidateOnly": True}


@base
def delete_records(world: World) -> Body:
    return {"Topics": [{"Name": DELETED_FROM, "Partitions": [{"PartitionIndex": 0, "Offset": 1}]}], "TimeoutMs": 1000}


@base
def describe_configs(world: World) -> Body:
    return {"Resources": [{"ResourceType": 2, "ResourceName": TOPIC, "ConfigurationKeys": ["retention.ms", "cleanup.policy"]}]}


@base
def alter_configs(world: World) -> Body:
    return {"Resources": [{"ResourceType": 2, "ResourceName": DELETED_FROM, "Configs": [{"Name": "retention.ms", "Value": "-1"}]}]}


@base
def incremental_alter_configs(world: World) -> Body:
    config = {"Name": "retention.ms", "ConfigOperation": 0, "Value": "-1"}
    return {"Resources": [{"ResourceType": 2, "ResourceName": DELETED_FROM, "Configs": [config]}]}


@base
def describe_cluster(world: World) -> Body:
    return {}


@base
def describe_log_dirs(world: World) -> Body:
    return {"Topics": [{"Topic": DELETED_FROM, "Partitions": [0]}]}


@base
def elect_leaders(world: World) -> Body:
    return {"TopicPartitions": [{"Topic": TOPIC, "Partitions": [0]}], "TimeoutMs": 1000}


@base
def alter_partition_reassignments(world: World) -> Body:
    return {"TimeoutMs": 1000, "Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 0, "Replicas": [1]}]}]}


@base
def list_partition_reassignments(world: World) -> Body:
    return {"TimeoutMs": 1000, "Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]}


@base
def describe_topic_partitions(world: World) -> Body:
    return {"Topics": [{"Name": TOPIC}], "Cursor": None}


@base
def list_config_resources(world: World) -> Body:
    return {"ResourceTypes": [16]}


@base
def describe_client_quotas(world: World) -> Body:
    return {"Components": [{"EntityType": "client-id", "MatchType": 0, "Match": "odd"}]}


@base
def alter_client_quotas(world: World) -> Body:
    entity = {"EntityType": "client-id", "EntityName": "odd-client"}
    return {"Entries": [{"Entity": [entity], "Ops": [{"Key": "producer_byte_rate", "Value": 1000.0}]}], "ValidateOnly": True}


@base
def describe_acls(world: World) -> Body:
    return {"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}


@base
def create_acls(world: World) -> Body:
    acl = {"ResourceType": 2, "ResourceName": "t", "Principal": "User:a", "Host": "*", "Operation": 3, "PermissionType": 3}
    return {"Creations": [acl]}


@base
def delete_acls(world: World) -> Body:
    return {"Filters": [{"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}]}


@base
def api_versions(world: World) -> Body:
    return {"ClientSoftwareName": "odd", "ClientSoftwareVersion": "1.0"}


@base
def sasl_handshake(world: World) -> Body:
    return {"Mechanism": "PLAIN"}


@base
def sasl_authenticate(world: World) -> Body:
    return {"AuthBytes": b"\0odd\0odd"}


@base
def create_delegation_token(world: World) -> Body:
    owner = {"OwnerPrincipalType": "User", "OwnerPrincipalName": "odd"}
    return {**owner, "Renewers": [{"PrincipalType": "User", "PrincipalName": "other"}], "MaxLifetimeMs": -1}


@base
def renew_delegation_token(world: World) -> Body:
    return {"Hmac": b"odd", "RenewPeriodMs": 1000}


@base
def expire_delegation_token(world: World) -> Body:
    return {"Hmac": b"odd", "ExpiryTimePeriodMs": 1000}


@base
def describe_delegation_token(world: World) -> Body:
    return {"Owners": [{"PrincipalType": "User", "PrincipalName": "odd"}]}


@base
def add_raft_voter(world: World) -> Body:
    listener = {"Name": "CONTROLLER", "Host": "127.0.0.1", "Port": 1}
    return {"ClusterId": None, "TimeoutMs": 1000, "VoterId": 9, "VoterDirectoryId": UNKNOWN_ID, "Listeners": [listener]}


@base
def remove_raft_voter(world: World) -> Body:
    return {"ClusterId": None, "VoterId": 9, "VoterDirectoryId": UNKNOWN_ID}


@base
def describe_user_scram_credentials(world: World) -> Body:
    return {"Users": [{"Name": "odd"}]}
