"""A long request of which some parts are refused: what the others did is in the answer."""

from types import SimpleNamespace

import pytest

from kafkacore import protocol as p
from kafkacore.broker.handlers import SERVED
from kafkacore.broker.server import Broker
from kafkacore.broker.slices import Parts, PartsJob, Slices
from kafkacore.broker.state import Call, Outcome
from kafkacore.errors import Code, InvalidRequest
from tests.kit.wire import Wire

PARTITIONS = 450
"""Three parts for each of two topics, the last of which is shorter."""
ALL = {(topic, index) for topic in "tu" for index in range(PARTITIONS)}


def election():
    return p.ElectLeadersRequest(
        election_type=0, topic_partitions=[p.TopicPartitions(topic=each, partitions=[*range(PARTITIONS)]) for each in "tu"]
    )


def reassignment():
    parts = [p.ReassignablePartition(partition_index=index, replicas=[1]) for index in range(PARTITIONS)]
    return p.AlterPartitionReassignmentsRequest(topics=[p.ReassignableTopic(name=each, partitions=parts) for each in "tu"])


def deletion():
    parts = [p.OffsetDeleteRequestPartition(partition_index=index) for index in range(PARTITIONS)]
    return p.OffsetDeleteRequest(group_id="g", topics=[p.OffsetDeleteRequestTopic(name=each, partitions=parts) for each in "tu"])


CASES = {43: election, 45: reassignment, 47: deletion}
ANSWERS = {43: ("replica_election_results", "partition_result"), 45: ("responses", "partitions"), 47: ("topics", "partitions")}
MESSAGE = "no controller just now"


def found_in(api_key, answer):
    """Code and message of each partition."""
    outer, inner = ANSWERS[api_key]
    found = {}
    for topic in getattr(answer, outer):
        for each in getattr(topic, inner):
            where = getattr(topic, "topic" if api_key == 43 else "name"), each.partition_id if api_key == 43 else each.partition_index
            assert where not in found
            found[where] = each.error_code, getattr(each, "error_message", None)
    return found


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("refused", [{0}, {5}, {0, 2, 4}, {0, 1, 2, 3, 4, 5}], ids=str)
@pytest.mark.parametrize("api_key", CASES)
def test_what_the_other_parts_did_is_answered(api_key, refused, is_late):
    """A request that is refused in all parts is refused as a whole. Answers may come late, the last one first."""
    [parts] = SERVED[api_key].parts
    response, (rows, _) = p.APIS[api_key].response, ANSWERS[api_key]
    message = MESSAGE if api_key == 45 else None
    expected, answers, calls, late = {}, [], [], []

    def handler(_state, call, request):
        nth = len(calls)
        calls.append(call)
        carried_out = response(error_code=0, **{rows: parts.refused(request, 0, None)})
        expected.update(dict.fromkeys(found_in(api_key, carried_out), (Code.NOT_CONTROLLER, message) if nth in refused else (0, None)))
        answer = carried_out
        if nth in refused:
            answer = response(error_code=Code.NOT_CONTROLLER, **({"error_message": MESSAGE} if message else {}), **{rows: []})
        if is_late:
            late.append((call, answer))
        return Outcome.LATER if is_late else answer

    call = Call(0, "bench", 0, 0, answers.append, pytest.fail, "/127.0.0.1")
    job = PartsJob(parts, handler, None, call, CASES[api_key](), Slices(), lambda: (0, 0), answers.append)
    while job.step():
        assert not answers
    while late:
        part, answer = late.pop()
        part.respond(answer)
    [answer] = answers
    assert len(calls) == 6 and expected.keys() == ALL
    if len(refused) == 6:
        assert (answer.error_code, getattr(answer, "error_message", None), found_in(api_key, answer)) == (Code.NOT_CONTROLLER, message, {})
    else:
        assert (answer.error_code, found_in(api_key, answer)) == (0, expected)


def fetched(request, refused):
    """Offsets of every partition, but for a group that is refused."""

    def topics(group):
        for topic in group.topics:
            found = [
                p.OffsetFetchResponsePartitions(partition_index=at, committed_offset=at, metadata="") for at in topic.partition_indexes
            ]
            yield p.OffsetFetchResponseTopics(name=topic.name, partitions=found)

    rows = [
        {"error_code": Code.NOT_COORDINATOR, "topics": []} if each.group_id == refused else {"topics": [*topics(each)]}
        for each in request.groups
    ]
    groups = [p.OffsetFetchResponseGroup(group_id=each.group_id, **row) for each, row in zip(request.groups, rows, strict=True)]
    return p.OffsetFetchResponse(groups=groups)


@pytest.mark.parametrize("refused", [set(), {1}, {2}, {3}, {4}, {1, 4}, {2, 3}], ids=str)
def test_a_group_that_is_refused_in_one_part_is_refused_as_a_whole(refused):
    wanted = {"a": {"t": 3}, "g": {"t": 450, "u": 250}, "z": {"t": 2}}
    groups = [
        p.OffsetFetchRequestGroup(
            group_id=name,
            topics=[p.OffsetFetchRequestTopics(name=topic, partition_indexes=[*range(count)]) for topic, count in topics.items()],
        )
        for name, topics in wanted.items()
    ]
    request, answers, calls = p.OffsetFetchRequest(groups=groups), [], []

    def handler(_state, call, part):
        calls.append(part)
        return fetched(part, "g" if len(calls) - 1 in refused else None)

    call = Call(8, "bench", 0, 0, answers.append, pytest.fail, "/127.0.0.1")
    call.elements = 705
    [parts] = [each for each in SERVED[9].parts if each.is_for(call)]
    job = PartsJob(parts, handler, None, call, request, Slices(), lambda: (0, 0), answers.append)
    while job.step():
        assert not answers
    assert answers == [fetched(request, "g" if refused else None)] and len(calls) == 7


def test_no_item_of_a_part_is_too_long():
    parts, short = Parts(("rows",), ("rows",), inner=("a", "b"), max_inner_elements=2), SimpleNamespace(a=None, b=[1, 2])
    parts.check(SimpleNamespace(rows=[short, short]))
    for longer in (SimpleNamespace(a=[1, 2, 3], b=None), SimpleNamespace(a=[], b=[1, 2, 3])):
        with pytest.raises(InvalidRequest, match="more than 2 elements in one item"):
            parts.check(SimpleNamespace(rows=[short, longer]))


def test_an_unknown_kind_of_election_is_refused_for_every_partition():
    """Kafka answers the partitions, too, where it refuses the request."""
    with Broker() as broker, Wire(broker.address) as wire:
        answer = wire.ask(election()._replace(election_type=7), 2)
    assert answer.error_code == Code.INVALID_REQUEST
    found = found_in(43, answer)
    assert found.keys() == ALL and {code for code, _ in found.values()} == {Code.INVALID_REQUEST}


GROUPED = {"grouped": True}
CHANGES = {"elements": 20, "inner": ("configs",)}
CUT = {
    **dict.fromkeys((8, 23, 28, 42, 46, 61, 65), ({},)),
    **dict.fromkeys((2, 21, 27, 34), (GROUPED,)),
    **dict.fromkeys((15, 69), ({"elements": 100},)),
    **dict.fromkeys((33, 44), (CHANGES,)),
    0: ({**GROUPED, "elements": 100, "outstanding": 2**30},),
    3: ({"elements": 50},),
    9: ({"last_version": 7}, {"first_version": 8}),
    10: ({"first_version": 4},),
    19: ({**CHANGES, "inner": ("configs", "assignments")},),
    32: ({"elements": 10, "inner": ("configuration_keys",)},),
    37: ({**CHANGES, "inner": ("assignments",)},),
    43: ({"refused": "not_elected"},),
    45: ({"refused": "not_reassigned"},),
    47: ({**GROUPED, "refused": "not_deleted"},),
}
"""How long requests are cut, where that is not as usual."""


def test_how_requests_are_cut():
    usual = Parts((), ())
    named = {"items", "answers", "key", "element", "repeats"}
    found = {}
    for api_key, served in SERVED.items():
        rows = [{name: value for name, value in each._asdict().items() if value != getattr(usual, name)} for each in served.parts]
        found[api_key] = tuple({name: getattr(each, "__name__", each) for name, each in row.items() if name not in named} for row in rows)
    assert {api_key: rows for api_key, rows in found.items() if rows} == CUT
    assert usual[6:11] == (200, 16, 0, 2**15, ()) and usual.max_inner_elements == 10_000
