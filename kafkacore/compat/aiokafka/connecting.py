"""How a client starts: it waits for the first broker that describes the cluster, and gives up once none is left to be asked.

Source: aiokafka.client.AIOKafkaClient.bootstrap, aiokafka 0.14.
"""

from __future__ import annotations

from kafkacore import errors as ours
from kafkacore.aio.call_threads import CallThreads
from kafkacore.aio.calls import CallThread
from kafkacore.compat.aiokafka import errors
from kafkacore.config import ClientConfig
from kafkacore.metadata import Metadata
from kafkacore.net.driver import CallerDriver


def unreachable(
    metadata: Metadata, config: ClientConfig, late: bool, before: tuple[int, int] = (0, 0)
) -> errors.KafkaConnectionError | None:
    """Why a client that starts cannot go on: each of bootstrap_servers has been tried, or a password is wrong.

    Args:
        metadata: of the client, without an answer yet.
        config: of the client.
        late: the time has expired.
        before: `counts` of the client when the start began.
    """
    if not metadata.snapshot.is_bootstrap:
        return None
    failures, fatal = counts(metadata)
    if failures - before[0] < len(config.bootstrap_servers) and fatal == before[1] and not late:
        return None
    tried = "; ".join(map(str, metadata.attempts))
    error = errors.KafkaConnectionError(f"Unable to bootstrap from {', '.join(config.bootstrap_servers)}: {tried or 'no answer'}")
    error.__cause__ = metadata.last_error
    return error


def counts(metadata: Metadata) -> tuple[int, int]:
    """Attempts that failed, and those of them that no other attempt can mend."""
    return metadata._failures, metadata.fatal_count


async def connect(calls: CallThread | CallThreads, driver: CallerDriver, config: ClientConfig, timeout_s: float) -> None:
    """Waits for a broker, on the client's thread.

    Args:
        calls: the thread.
        driver: of the client's network.
        config: of the client.
        timeout_s: the longest wait.

    Raises:
        KafkaConnectionError: none of bootstrap_servers could be reached.
    """
    metadata = driver.metadata
    before = counts(metadata)

    def call() -> None:
        with driver:
            metadata.request_update()
            try:
                driver.run(
                    lambda _: None,
                    lambda: not metadata.snapshot.is_bootstrap or unreachable(metadata, config, False, before) is not None,
                    int(timeout_s * 1000),
                )
            except ours.KafkaError:
                if counts(metadata)[1] == before[1]:
                    raise

    with errors.translated():
        await calls.run(call)
    if (failure := unreachable(metadata, config, True)) is not None:
        raise failure
