"""What DescribeConfigs says of a setting for include_documentation: our words, of what the embedded broker does with it.

Kafka has a text for every setting but for loggers, and so has this broker. What it implements is in the docstring of `BrokerConfig`;
of all other settings it says why they do nothing.
"""

from __future__ import annotations

from kafkacore.broker.configs import UNITS, ConfigKey, Resource
from kafkacore.config import BrokerConfig
from kafkacore.config_broker_tables import HARMLESS
from kafkacore.config_broker_tls import field_of

NOT_IMPLEMENTED = "Not implemented by the embedded broker: what is set is kept and shown, and has no effect."
THROTTLED = "Replicas, as PARTITION:BROKER pairs or *, that {side} copy no faster than {side}.replication.throttled.rate of the broker."
UNSEEN = "Taken and not used: it says how Kafka spends threads, buffers and files, and no client could see it."
METRICS = "Kept and reported; no metrics are asked for."
_FACTS = {
    "advertised.listeners": "The address that clients of each listener are given (KIP-103).",
    "broker.id": "The number of this broker, as node.id.",
    "inter.broker.listener.name": "Where brokers connect to each other.",
    "listeners": "What the broker listens on.",
    "log.dirs": "Where the logs lie; none if they are kept in memory.",
    "node.id": "The number of this broker.",
    "process.roles": "broker: the controller is no node of its own.",
}


def documentation(kind: int, key: ConfigKey) -> str:
    """What a setting does here.

    Args:
        kind: of the resource.
        key: the setting.
    """
    if kind == Resource.CLIENT_METRICS:
        return METRICS
    name = key.link if kind in (Resource.TOPIC, Resource.GROUP) and key.link else key.name
    if name in HARMLESS or key.name in HARMLESS:
        return UNSEEN
    if key.name.endswith(".replication.throttled.replicas"):
        return THROTTLED.format(side=key.name.partition(".")[0])
    sentence = BrokerConfig.sentences().get(field_of(name)) or (_FACTS.get(name) if kind == Resource.BROKER else None)
    if sentence is not None:
        return f"{sentence[0].upper()}{sentence[1:]}"
    for strongest, *weaker in UNITS:
        if name in weaker and name.endswith((".hours", ".minutes")):
            return f"The default of {strongest}, in {name.rpartition('.')[2]}."
    return NOT_IMPLEMENTED
