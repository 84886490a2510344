"""Any administration a client can think of: the broker answers, and goes on answering."""

from hypothesis import given, settings
from hypothesis import strategies as st
from test_handlers import Bench

from kafkacore import protocol as p
from kafkacore.broker import configs
from kafkacore.broker.state import Outcome
from tests.kit.reached import Reached

NAMES = [*configs.topic_keys(), *configs.broker_keys(), *configs.group_keys(), *configs.client_metrics_keys(), "", "no.such", "\u00e9"]
NUMBERS = ["0", "-1", "-2", "1", "2147483647", "9" * 30, "1e400", "nan"]
VALUES = st.sampled_from([None, "", *NUMBERS, "true", "compact", "delete,compact", "gzip", "1:2", "*", "DEBUG"]) | st.text(max_size=5)
RESOURCES = st.sampled_from([0, 2, 4, 8, 16, 32, 99])
RESOURCE_NAMES = st.sampled_from(["t", "1", "2", "", "missing", "not a name", "root", "-1", "9" * 400])


def everything(bench):
    asked = [(2, "t"), (4, "1"), (4, ""), (16, "t"), (32, "t")]
    resources = [p.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in asked]
    answer = bench.ask(p.DescribeConfigsRequest(resources=resources, include_synonyms=True), 4)
    assert [result.error_code for result in answer.results] == [0] * len(asked)
    return {(result.resource_type, entry.name): entry.value for result in answer.results for entry in result.configs}


def given_to(bench, request, version):
    before = len(bench.late)
    answer = bench.ask(request, version)
    if answer is Outcome.LATER:
        assert len(bench.late) == before + 1
        answer = bench.late[-1]
    return answer


def requests(request, resource, entry, **more):
    """Alterations of a kind."""
    legal = st.builds(entry, name=st.sampled_from(["retention.ms", "log.retention.ms"]), value=st.sampled_from(["5", "6", None]), **more)
    wild = st.builds(entry, name=st.sampled_from(NAMES), value=VALUES, **more)
    entries = st.lists(legal, min_size=1, max_size=1) | st.lists(legal | wild, max_size=3)
    there = st.sampled_from([(2, "t"), (4, "1"), (4, "")])
    places = there | there | st.tuples(RESOURCES, RESOURCE_NAMES)
    made = st.tuples(places, entries).map(lambda of: resource(resource_type=of[0][0], resource_name=of[0][1], configs=of[1]))
    resources = st.lists(made, min_size=1, max_size=3)
    return st.builds(request, resources=resources, validate_only=st.booleans())


REPLACEMENTS = requests(p.AlterConfigsRequest, p.AlterConfigsResource, p.AlterableConfig)
ALTERATIONS = requests(
    p.IncrementalAlterConfigsRequest,
    p.IncrementalAlterConfigsResource,
    p.IncrementalAlterableConfig,
    config_operation=st.sampled_from([0, 0, 0, 1, 2, 3, -1, 5]),
)


alterations = Reached("something changes", "one is taken and another refused", "refused", "taken, and only checked")


@alterations.by
@settings(max_examples=250, deadline=None)
@given(ALTERATIONS | REPLACEMENTS)
def test_any_alteration_is_answered(request):
    resources = [each for each in request.resources if each.resource_type != 8]  # loggers are the process's own
    validate_only = request.validate_only
    bench = Bench()
    bench.topic()
    before = everything(bench)
    answer = given_to(bench, request._replace(resources=resources), request.MAX_VERSION)
    assert len(answer.responses) == len(resources)
    after, refused = everything(bench), [bool(each.error_code) for each in answer.responses]
    alterations("something changes", after != before)
    alterations("one is taken and another refused", len(set(refused)) == 2)
    alterations("refused", any(refused))
    alterations("taken, and only checked", validate_only and not all(refused))
    if validate_only or all(each.error_code for each in answer.responses):
        assert after == before


ENTITIES = st.lists(
    st.builds(
        p.ClientQuotaEntityPart,
        entity_type=st.sampled_from(["user", "client-id", "ip", "", "x"]),
        entity_name=st.sampled_from([None, "", "a", "::1"]),
    ),
    max_size=3,
)
OPS = st.lists(
    st.builds(
        p.ClientQuotaOp,
        key=st.sampled_from(["producer_byte_rate", "request_percentage", "connection_creation_rate", "x"]),
        value=st.floats(),
        remove=st.booleans(),
    ),
    max_size=3,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.builds(p.ClientQuotaAlteration, entity=ENTITIES, ops=OPS), max_size=3))
def test_any_quota_is_answered(entries):
    bench = Bench()
    answer = given_to(bench, p.AlterClientQuotasRequest(entries=entries), 1)
    assert len(answer.entries) <= len(entries)
    bench.ask(p.DescribeClientQuotasRequest(components=[]), 1)


def test_quotas_named_twice():
    bench = Bench()
    part = p.ClientQuotaEntityPart(entity_type="user", entity_name="u")
    other = part._replace(entity_name="v")

    def op(value, key="producer_byte_rate"):
        return p.ClientQuotaOp(key=key, value=value, remove=False)

    def alter(*entries):
        asked = [p.ClientQuotaAlteration(entity=entity, ops=ops) for entity, ops in entries]
        return [(each.error_code, each.entity) for each in given_to(bench, p.AlterClientQuotasRequest(entries=asked), 1).entries]

    def stored():
        quotas = bench.cluster.client_quotas
        return {name: values for entity, values in quotas.items() for _, name in entity}

    assert alter(([part], [op(1.0), op(2.0)])) == [(42, [part])]
    assert stored() == {}
    assert alter(([part], [op(1.0)]), ([part], [op(2.0)])) == [(42, [part])]
    assert stored() == {"u": {"producer_byte_rate": 1.0}}  # the first was taken all the same
    assert alter(([part, other], [op(3.0)])) == [(0, [other])]
    assert stored() == {"u": {"producer_byte_rate": 1.0}, "v": {"producer_byte_rate": 3.0}}


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.builds(
            p.FeatureUpdateKey,
            feature=st.sampled_from(["metadata.version", "group.version", "transaction.version", "", "x"]),
            max_version_level=st.integers(-(2**15), 2**15 - 1) | st.integers(-1, 3),
            upgrade_type=st.integers(-1, 4),
        ),
        max_size=3,
    )
)
def test_any_feature_update_is_answered(updates):
    bench = Bench()
    answer = given_to(bench, p.UpdateFeaturesRequest(feature_updates=updates), 2)
    levels = bench.cluster.features
    assert answer.error_code or all(levels.get(each.feature, 0) >= 0 for each in updates)
