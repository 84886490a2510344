"""One call of each client, for tests of how a client that is refused hears of it."""

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer


def produce(settings):
    with KafkaProducer(settings, max_block_ms=20_000) as producer:
        producer.send("t", b"v").result(60)


def consume(settings):
    with KafkaConsumer("t", **{name.replace(".", "_"): value for name, value in settings.items()}) as consumer:
        consumer.poll(20)


def manage(settings):
    with KafkaAdminClient(settings) as admin:
        return admin.list_topics()


CALLS = [produce, consume, manage]
