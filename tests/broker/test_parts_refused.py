"""A long request of which some parts are refused: what the others did is in the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import protocol as p
from kafkacore.broker.handlers import SERVED
from kafkacore.broker.server import Broker
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from tests.kit.wire import Wire

PARTITIONS = 450
"""Three parts for each of two topics, the last of which is shorter."""


def election(indexes: range) -> Any:
    return p.ElectLeadersRequest(election_type=0, topic_partitions=[p.TopicPartitions(topic=each, partitions=[*indexes]) for each in "tu"])


def reassignment(indexes: range) -> Any:
    parts = [p.ReassignablePartition(partition_index=index, replicas=[1]) for index in indexes]
    return p.AlterPartitionReassignmentsRequest(topics=[p.ReassignableTopic(name=each, partitions=parts) for each in "tu"])


def deletion(indexes: range) -> Any:
    parts = [p.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    return p.OffsetDeleteRequest(group_id="g", topics=[p.OffsetDeleteRequestTopic(name=each, partitions=parts) for each in "tu"])


CASES = {43: (election, 2), 45: (reassignment, 1), 47: (deletion, 0)}
_ANSWERS = {43: ("replica_election_results", "partition_result"), 45: ("responses", "partitions"), 47: ("topics", "partitions")}
_MESSAGE = "no controller just now"


def found_in(api_key: int, answer: Any) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Code and message of each partition."""
    outer, inner = _ANSWERS[api_key]
    found = {}
    for topic in getattr(answer, outer):
        for each in getattr(topic, inner):
            where = getattr(topic, "topic" if api_key == 43 else "name"), each.partition_id if api_key == 43 else each.partition_index
            assert where not in found
            found[where] = each.error_code, getattr(each, "error_message", None)
    return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BrokerConfig()) as made:
        yield made


@pytest.fixture
def refusing(broker: Broker) -> Iterator[Callable[[int, Callable[[int], bool]], list[Any]]]:
    """Has the parts of an API's requests refused by their numbers, the others answered with success; gives the parts handled."""
    before = broker.served

    def begin(api_key: int, is_refused: Callable[[int], bool]) -> list[Any]:
        handled: list[Any] = []
        served = SERVED[api_key]

        def handler(state: Any, call: Any, request: Any) -> Any:
            handled.append(request)
            response = p.APIS[api_key].response
            [parts] = served.parts
            if is_refused(len(handled) - 1):
                message = {"error_message": _MESSAGE} if api_key == 45 else {}
                return response(error_code=Code.NOT_CONTROLLER, **message, **{_ANSWERS[api_key][0]: []})
            assert parts.refused is not None
            return response(error_code=0, **{_ANSWERS[api_key][0]: parts.refused(request, 0, None)})

        broker.call(lambda: setattr(broker, "served", {**before, api_key: served._replace(handler=handler)}))
        return handled

    yield begin
    broker.call(lambda: setattr(broker, "served", before))


ALL = {(topic, index) for topic in "tu" for index in range(PARTITIONS)}


@pytest.mark.parametrize("refused", [{0}, {5}, {0, 2, 4}, {0, 1, 2, 3, 4, 5}], ids=str)
@pytest.mark.parametrize("api_key", CASES)
def test_what_the_other_parts_did_is_answered(broker: Broker, refusing: Any, api_key: int, refused: set[int]) -> None:
    """A request that is refused in all parts is refused as a whole."""
    make, version = CASES[api_key]
    handled = refusing(api_key, refused.__contains__)
    with Wire(broker.address) as wire:
        answer = wire.ask(make(range(PARTITIONS)), version)
    message = _MESSAGE if api_key == 45 else None
    if len(refused) == 6:
        assert (answer.error_code, getattr(answer, "error_message", None), found_in(api_key, answer)) == (Code.NOT_CONTROLLER, message, {})
        return
    expected = {}
    for nth, part in enumerate(handled):
        refusal = SERVED[api_key].parts[0].refused
        assert refusal is not None
        response = p.APIS[api_key].response(error_code=0, **{_ANSWERS[api_key][0]: refusal(part, 0, None)})
        for where in found_in(api_key, response):
            expected[where] = (Code.NOT_CONTROLLER, message) if nth in refused else (0, None)
    assert answer.error_code == 0
    assert found_in(api_key, answer) == expected and expected.keys() == ALL


def test_an_unknown_kind_of_election_is_refused_for_every_partition(broker: Broker) -> None:
    """Kafka answers the partitions, too, where it refuses the request."""
    with Wire(broker.address) as wire:
        answer = wire.ask(election(range(PARTITIONS))._replace(election_type=7), 2)
    assert answer.error_code == Code.INVALID_REQUEST
    found = found_in(43, answer)
    assert found.keys() == ALL and {code for code, _ in found.values()} == {Code.INVALID_REQUEST}
