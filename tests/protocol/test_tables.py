"""Holds the tables against Kafka's own message definitions, as the kafka-python wheel ships them.

Compared per field: effective versions (with those of its parents), type, nullability, tag, default, ignorable, and the flexible versions.
Class names, and where a field's range reaches beyond its message's, are ours to choose.
"""

import json
import re
import zlib
from importlib import resources

from protocol_kit import BETWEEN_BROKERS, MESSAGES, STORED_MESSAGES, name_of, versions_of

from kafkacore.protocol import APIS, metadata_log
from kafkacore.protocol.releases import WITHOUT_API_VERSIONS
from kafkacore.protocol.schema import Message, Request, Response, Struct, Versions, WireType
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
                "tagged": set() if field.tag is None else versions,
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


def test_every_api_has_a_request_and_a_response_of_the_same_versions():
    for base in (Request, Response):
        assert sorted(kind.API_KEY for kind in base.__subclasses__() if kind.__module__.startswith("kafkacore.")) == list(APIS)
    for key, (own, name, request, response, *versions) in APIS.items():
        assert (own, f"{name}Request", f"{name}Response") == (key, request.__name__, response.__name__)
        assert (request.API_KEY, response.API_KEY, request.RESPONSE, response.REQUEST) == (key, key, response, request)
        assert versions == [request.MIN_VERSION, request.MAX_VERSION, request.OLDEST_SERVED]
        assert versions[:2] == [response.MIN_VERSION, response.MAX_VERSION]


AS_KAFKA_HAS_THEM = """
CreateDelegationTokenRequest:ab5515b6  CreateDelegationTokenResponse:b621f088  RenewDelegationTokenRequest:5986bab0
RenewDelegationTokenResponse:9e622777  ExpireDelegationTokenRequest:358a5bf0  ExpireDelegationTokenResponse:8539d95c
DescribeDelegationTokenRequest:1905dd25  DescribeDelegationTokenResponse:a5f5a03c  AlterPartitionRequest:9b1f2e85
AlterPartitionResponse:ebb26afb  EnvelopeRequest:4516abac  EnvelopeResponse:77ca0951  FetchSnapshotRequest:7138af2e
FetchSnapshotResponse:5c0ae13c  BrokerRegistrationRequest:4c2089fb  BrokerRegistrationResponse:7eec3644  BrokerHeartbeatRequest:496e1a7a
BrokerHeartbeatResponse:c36c9667  UnregisterBrokerRequest:ea5dc5e1  UnregisterBrokerResponse:8acfa248
AllocateProducerIdsRequest:e00834b0  AllocateProducerIdsResponse:7b571ef4  ConsumerGroupHeartbeatRequest:4f87ca6e
ConsumerGroupHeartbeatResponse:7cb4ffd3  ConsumerGroupDescribeRequest:005af08d  ConsumerGroupDescribeResponse:30b8845d
AssignReplicasToDirsRequest:dc30ed6a  AssignReplicasToDirsResponse:d836183e  AddRaftVoterRequest:0969947e  AddRaftVoterResponse:abe6bc51
RemoveRaftVoterRequest:753046c0  RemoveRaftVoterResponse:9b8b7b11  SnapshotHeaderRecord:6e9d7855  SnapshotFooterRecord:fe0bbeb9
DefaultPrincipalData:2d2e959d  StickyAssignorUserData:555784a6  CooperativeStickyAssignorUserData:7f0593f3  OffsetCommitKey:689fe29f
OffsetCommitValue:dd506941  GroupMetadataKey:740ef9f5  GroupMetadataValue:f9c014d1  ConsumerGroupMetadataKey:93b2e110
ConsumerGroupMetadataValue:e72f5e04  ConsumerGroupPartitionMetadataKey:9e66447b  ConsumerGroupMemberMetadataKey:72074f6b
ConsumerGroupMemberMetadataValue:1dd7ab6f  ConsumerGroupTargetAssignmentMetadataKey:546e847c
ConsumerGroupTargetAssignmentMetadataValue:f5cb78a7  ConsumerGroupTargetAssignmentMemberKey:dfe6d923
ConsumerGroupTargetAssignmentMemberValue:ab3d8729  ConsumerGroupCurrentMemberAssignmentKey:7e50fd7d
ConsumerGroupCurrentMemberAssignmentValue:bb8b68af  ConsumerGroupRegularExpressionKey:a1fe0a01
ConsumerGroupRegularExpressionValue:cf1b0acf  TransactionLogKey:3f5d86fe  TransactionLogValue:e4ec7fea  MetadataRecord:67e2356b
RegisterBrokerRecord:3ff1fee5  UnregisterBrokerRecord:f5e32dbf  FenceBrokerRecord:4b37f154  UnfenceBrokerRecord:496cc350
BrokerRegistrationChangeRecord:bd099971  RegisterControllerRecord:7b8cefe4  TopicRecord:015a5ac4  RemoveTopicRecord:7f36f083
PartitionRecord:36b89e25  PartitionChangeRecord:15b86021  ClearElrRecord:c15744b3  ConfigRecord:d87a285c  FeatureLevelRecord:bacad9bf
ProducerIdsRecord:2022b301  NoOpRecord:d8be335b  ZkMigrationStateRecord:2e3a490a  BeginTransactionRecord:ee6326c6
EndTransactionRecord:31d63eb9  AbortTransactionRecord:6c616f0e  ClientQuotaRecord:ba5de3c1  AccessControlEntryRecord:ca07feec
RemoveAccessControlEntryRecord:970f3046  DelegationTokenRecord:92dec66b  RemoveDelegationTokenRecord:f5eedc41
UserScramCredentialRecord:c4e3fac4  RemoveUserScramCredentialRecord:0fd57c6a
"""
"""CRC-32 of descriptions that the wheel lacks. interop/test_stored_definitions.py and test_metadata_log_tool.py hold them against Kafka:
run these before a number changes."""


def described(kind):
    head = (kind.API_KEY, kind.MIN_VERSION, kind.MAX_VERSION, kind.OLDEST_SERVED, kind.FLEXIBLE_VERSION)
    rows = our_rows(kind, set(versions_of(kind)))
    shown = [(path, *(sorted(value) if isinstance(value, set) else value for value in row.values())) for path, row in rows]
    return f"{kind.__name__}:{zlib.crc32(repr((head, shown)).encode()):08x}"


def test_tables_without_a_definition_here_are_as_they_were_beside_kafka():
    records = [kind for kind in vars(metadata_log).values() if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message]
    found = [described(kind) for kind in (*(kind for kind in MESSAGES if kind.__name__ in NO_DEFINITION), *records)]
    assert found == AS_KAFKA_HAS_THEM.split()


def test_what_brokers_speak_that_have_no_api_versions():
    of_0_8 = {"Produce": 0, "Fetch": 0, "ListOffsets": 0, "Metadata": 0, "OffsetCommit": 1, "OffsetFetch": 1, "FindCoordinator": 0}
    of_0_9 = of_0_8 | {"Produce": 1, "Fetch": 1, "OffsetCommit": 2}
    of_0_9 |= dict.fromkeys(("JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups"), 0)
    for release, wanted in (("0.8", of_0_8), ("0.9", of_0_9)):
        found = WITHOUT_API_VERSIONS[release]
        assert {APIS[key].name: range for key, range in found.items()} == {name: (0, highest) for name, highest in wanted.items()}
