"""One call of each client, for tests of how a client that is refused hears of it."""

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer

WAIT_S = 120


def produce(settings):
    with KafkaProducer(settings, max_block_ms=WAIT_S * 1_000) as producer:
        producer.send("t", b"v").result(WAIT_S)


def consume(settings):
    with KafkaConsumer("t", **{name.replace(".", "_"): value for name, value in settings.items()}) as consumer:
        consumer.poll(WAIT_S)


def manage(settings):
    with KafkaAdminClient(settings) as admin:
        return admin.list_topics(timeout=WAIT_S)


CALLS = [produce, consume, manage]
