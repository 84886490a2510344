"""What of confluent-kafka is not here, and why: errors of imports and docs/moving-from-confluent-kafka.md show this table."""

from __future__ import annotations

NOT_COVERED = {
    "ShareConsumer": "the engine has no share consumers",
    "DeserializingShareConsumer": "the engine has no share consumers",
    "Messages": "it is what share consumers give, which the engine does not have",
    "AcknowledgeType": "it is for share consumers, which the engine does not have",
    "SHARE_ACKNOWLEDGE_TYPE_ACCEPT": "it is for share consumers, which the engine does not have",
    "SHARE_ACKNOWLEDGE_TYPE_REJECT": "it is for share consumers, which the engine does not have",
    "SHARE_ACKNOWLEDGE_TYPE_RELEASE": "it is for share consumers, which the engine does not have",
    "libversion": "there is no librdkafka behind these names; kafkacore.__version__ is the engine's",
    "version": "there is no librdkafka behind these names; kafkacore.__version__ is the engine's",
    "aio.AsyncSerializingProducer": "AIOProducer sends what serializers made, and kafkacore.aio has serializers of its own",
    "aio.AsyncDeserializingConsumer": "AIOConsumer gives bytes to deserializers, and kafkacore.aio has deserializers of its own",
    "avro": "confluent-kafka has deprecated it; AvroSerializer of confluent_kafka.schema_registry takes its place",
    "kafkatest": "it is the package's own test program",
    "schema_registry": "confluent_kafka.schema_registry uses no librdkafka: its serializers are taken by these clients as they are",
}
"""By name, module or method of the package the reason, a sentence."""


def reason(name: str) -> str:
    """The text of an import that fails."""
    return f"kafkacore.compat.confluent has no {name}: {NOT_COVERED[name]}"
