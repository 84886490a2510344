"""Every message of the tables, and what fills them."""

import random

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
"""Messages that kafka-python does not define, as no client sends them; interop/test_metadata_log_tool.py holds them against Kafka."""

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
