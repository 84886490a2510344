"""A pool of worker processes in one group: each record goes to one worker, and the records of a partition to the same one, in order.

The group shares the partitions out. When a worker ends or is killed, the others get its partitions, so more workers than partitions are
only a reserve. Commits are automatic: a worker that is killed leaves at most a few seconds of records that are handed out again.

    python examples/workers.py orders --workers 3
"""

import argparse
import multiprocessing
import signal

from kafkacore import ConsumerRecord, KafkaConsumer, errors


def handle(worker: int, record: ConsumerRecord) -> None:
    print(f"worker {worker}: partition {record.partition} offset {record.offset} {record.value!r}", flush=True)


def work(worker: int, topic: str, group: str, bootstrap_server: str) -> None:
    """One process: one consumer, one member of the group."""
    with KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_server,
        group_id=group,
        client_id=f"worker-{worker}",
        auto_offset_reset="earliest",
    ) as consumer:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C goes to all processes of a terminal: the pool says when to end
        signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())  # the record under way is finished first
        try:
            for record in consumer:
                handle(worker, record)
        except errors.WakeupError:
            pass
    # The end of the block has committed what was handled, and has left the group: the others need not wait for a session to end.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("--group", default="workers")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()

    start = multiprocessing.get_context("spawn")  # a consumer belongs to the process that made it: never share one by fork
    pool = [
        start.Process(target=work, args=(number, options.topic, options.group, options.bootstrap_server))
        for number in range(options.workers)
    ]
    try:
        for process in pool:
            process.start()
        for process in pool:
            process.join()
    except KeyboardInterrupt:
        pass
    finally:
        for process in pool:
            process.terminate()
        for process in pool:
            process.join()


if __name__ == "__main__":
    main()
