"""Every message of the tables, strategies that fill them, and kafka-python's classes as the independent reader and writer."""

import importlib
import random
import uuid

from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs import BitField

from kafkacore import protocol
from kafkacore.protocol import stored
from kafkacore.protocol.schema import Message, Struct

BETWEEN_BROKERS = {
    name + side
    for name in (
        "AlterPartition",
        "BrokerRegistration",
        "BrokerHeartbeat",
        "UnregisterBroker",
        "AllocateProducerIds",
        "FetchSnapshot",
        "Envelope",
        "AssignReplicasToDirs",
        *("AddRaftVoter", "RemoveRaftVoter"),
        *(f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")),
    )
    for side in ("Request", "Response")
}
"""Messages that kafka-python has none of, mostly since no client sends them; interop/test_metadata_log_tool.py holds them against Kafka."""

API_MESSAGES = [message for api in protocol.APIS.values() for message in (api.request, api.response)]
STORED_MESSAGES = [kind for kind in vars(stored).values() if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message]
MESSAGES = API_MESSAGES + STORED_MESSAGES


def name_of(message):
    return message.__name__


def versions_of(message):
    return range(message.MIN_VERSION, message.MAX_VERSION + 1)


def whole(parts):
    return b"".join(bytes(part) for part in parts)


def is_struct(field):
    return isinstance(field.type, type) and issubclass(field.type, Struct)


INTS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def value_strategy(field, version):
    """Values of one element of a field."""
    if is_struct(field):
        return struct_strategy(field.type, version)
    name = field.type.name
    if name in INTS:
        return st.integers(*INTS[name])
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": st.text(max_size=8),
        "bytes": st.binary(max_size=8),
        "records": st.binary(max_size=8),
        "uuid": st.binary(min_size=16, max_size=16),
    }[name]


def struct_strategy(kind, version):
    """Structs with a value in every field that the version has, and defaults elsewhere."""
    values = {}
    for name, field in kind.FIELDS.items():
        if not field.versions.has(version):
            continue
        values[name] = value_strategy(field, version)
        if field.is_array:
            values[name] = st.lists(values[name], max_size=3)
        if field.nullable.has(version):
            values[name] = st.none() | values[name]
    return st.builds(kind, **values)


def sample(kind, version, seed=0, depth=0):
    """A struct with pseudo-random values everywhere, the same in every run."""
    rng = random.Random(f"{kind.__name__} {version} {seed} {depth}")

    def one(field):
        if is_struct(field):
            return sample(field.type, version, seed + rng.randrange(100), depth + 1)
        name = field.type.name
        if name in INTS:
            low, high = INTS[name]
            return rng.choice([low, high, rng.randint(low, high), rng.randint(0, 100)])
        if name == "string":
            return rng.choice(["", "plain", "größe", "x" * 200])
        if name in ("bytes", "records"):
            return rng.choice([b"", b"abc", b"\x00" * 300])
        return {"bool": rng.random() < 0.5, "float64": rng.random(), "uuid": rng.randbytes(16)}[name]

    values = {}
    for name, field in kind.FIELDS.items():
        if not field.versions.has(version):
            continue
        if field.nullable.has(version) and rng.random() < 0.2:
            values[name] = None
        elif field.is_array:
            values[name] = [one(field) for _ in range(rng.randrange(4))]
        else:
            values[name] = one(field)
    return kind(**values)


# ---- kafka-python ----

_PEER_MODULES = [
    importlib.import_module(f"kafka.protocol.{name}") for name in ("metadata", "producer", "consumer", "admin", "sasl", "consumer.metadata")
]


def peer_class(message):
    """kafka-python's class of the same name, or None."""
    for module in _PEER_MODULES:
        if hasattr(module, message.__name__):
            return getattr(module, message.__name__)
    return None


def _peer_name(name, peer_fields):
    """kafka-python calls every bit field of permissions authorized_operations."""
    return name if name in peer_fields else name.removeprefix("cluster_").removeprefix("topic_")


def to_peer(kind, value, version, peer_fields, build):
    """One of our structs as kafka-python's object of the same shape."""
    values = {}
    for name, field in kind.FIELDS.items():
        if not field.versions.has(version):
            continue
        peer_field = peer_fields[_peer_name(name, peer_fields)]
        values[peer_field.name] = _peer_value(field, getattr(value, name), version, peer_field)
    return build(**values)


def _peer_value(field, value, version, peer_field):
    if value is None:
        return None
    if is_struct(field):

        def one(item):
            return to_peer(field.type, item, version, peer_field.fields, lambda **kw: peer_field.data_class(version=version, **kw))

    else:

        def one(item):
            if field.type.name == "uuid":
                return uuid.UUID(bytes=item)
            if getattr(peer_field, "_type", None) is BitField:
                return BitField.from_32_bit_field(item)
            return item

    return [one(item) for item in value] if field.is_array else one(value)


def equal_to_peer(kind, ours, peer, version, path=""):
    """Asserts that kafka-python read the same values."""
    for name, field in kind.FIELDS.items():
        if not field.versions.has(version):
            continue
        mine, theirs = getattr(ours, name), getattr(peer, _peer_name(name, peer.fields))
        here = f"{path}.{name}"
        if theirs is None and (name.endswith("authorized_operations") or field.tag is not None):
            # kafka-python says None for "not told" and for a tagged struct that is not there
            assert mine == getattr(kind(), name), here
            continue
        if theirs is None and not is_struct(field) and field.type.name == "uuid":
            assert mine == bytes(16), here  # kafka-python says None for the zero id
            continue
        if mine is None or theirs is None:
            assert mine is theirs, here
            continue
        pairs = zip(mine, theirs, strict=True) if field.is_array else [(mine, theirs)]
        for mine_one, theirs_one in pairs:
            if is_struct(field):
                equal_to_peer(field.type, mine_one, theirs_one, version, here)
                continue
            if isinstance(theirs_one, uuid.UUID):
                theirs_one = theirs_one.bytes
            elif isinstance(theirs_one, set):
                theirs_one = sum(1 << bit for bit in theirs_one)
                theirs_one -= (theirs_one >> 31) << 32
            elif isinstance(mine_one, memoryview):
                mine_one, theirs_one = bytes(mine_one), bytes(theirs_one)
            assert mine_one == theirs_one, here
