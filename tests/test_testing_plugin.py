"""The pytest plugin: what it costs a run without Kafka, and its fixtures, in runs of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _no_other_plugins(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeini("[pytest]\naddopts = -p kafkacore.testing.plugin -p no:cacheprovider")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_a_run_without_kafka_loads_three_small_modules(pytester: pytest.Pytester) -> None:
    """pytest loads the plugin in every run of an environment in which kafkacore is installed."""
    pytester.makepyfile(
        """
        import sys

        def ours():
            return {name for name in sys.modules if name.partition(".")[0] == "kafkacore"}

        def test_without_kafka():
            assert ours() == {"kafkacore", "kafkacore.testing", "kafkacore.testing.plugin"}

        def test_with_kafka(kafka_topic):
            assert "kafkacore.broker.server" in ours()
        """
    )
    pytester.runpytest_subprocess(timeout=120).assert_outcomes(passed=2)


def test_a_cluster_and_fresh_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        seen = []

        @pytest.mark.parametrize("n", [1, 2])
        def test_topic(kafka_cluster, kafka_topic, n):
            assert kafka_cluster.topics() == {kafka_topic: 1}
            assert kafka_topic not in seen
            seen.append(kafka_topic)

        def test_deleted(kafka_cluster, kafka_topic):
            kafka_cluster.delete_topic(kafka_topic)
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=3)


def test_the_marker_says_which_cluster_and_which_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        clusters = []

        def seen(cluster):
            clusters.append(cluster.cluster_id)
            return len(set(clusters))

        @pytest.mark.kafka(topics={"orders": 4, "refunds": 1}, brokers=3, configs={"min.insync.replicas": 2})
        def test_three(kafka_cluster, request):
            assert kafka_cluster.topics() == {"orders": 4, "refunds": 1}
            assert len(kafka_cluster.bootstrap_servers.split(",")) == 3
            assert kafka_cluster.config.min_insync_replicas == 2
            assert request.node.name == "test_three"
            assert seen(kafka_cluster) == 1

        @pytest.mark.kafka(topics="orders", configs={"min.insync.replicas": 2}, brokers=3)
        def test_the_same_three(kafka_cluster):
            assert kafka_cluster.topics() == {"orders": 1}
            assert seen(kafka_cluster) == 1

        @pytest.mark.kafka(topics=["a", "b"])
        def test_one(kafka_cluster, kafka_topic):
            assert kafka_cluster.topics() == {"a": 1, "b": 1, kafka_topic: 1}
            assert len(kafka_cluster.bootstrap_servers.split(",")) == 1
            assert seen(kafka_cluster) == 2

        @pytest.mark.kafka(brokers=2, topics="t")
        class TestOfTwo:
            def test_of_the_class(self, kafka_cluster):
                assert len(kafka_cluster.bootstrap_servers.split(",")) == 2
                assert kafka_cluster.topics() == {"t": 1}

            @pytest.mark.kafka(topics="u")
            def test_the_nearest_counts(self, kafka_cluster):
                assert len(kafka_cluster.bootstrap_servers.split(",")) == 2
                assert kafka_cluster.topics() == {"u": 1}
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=5)


def test_topics_of_a_test_do_not_stay_for_the_next(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="module")
        def of_the_module(kafka_cluster):
            kafka_cluster.create_topic("wide")

        @pytest.fixture
        def of_the_test(kafka_cluster):
            kafka_cluster.create_topic("narrow")

        @pytest.mark.parametrize("n", [1, 2])
        @pytest.mark.kafka(topics="marked")
        def test_what_is_left(of_the_test, of_the_module, kafka_cluster, n):
            assert kafka_cluster.topics() == {"wide": 1, "narrow": 1, "marked": 1}
            kafka_cluster.create_topic("left")
            kafka_cluster.produce("created-by-a-producer", ["v"])
            kafka_cluster.delete_topic("narrow")

        def test_that_closes(kafka_cluster, kafka_topic):
            kafka_cluster.close()
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=3)


def test_brokers_that_a_test_stopped_are_back_for_the_next(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from kafkacore.testing import CLIENTS, Drop

        pytestmark = pytest.mark.kafka(brokers=3, faults=True)

        def counted(request):
            pass

        @pytest.fixture(scope="module")
        def of_the_module(kafka_cluster):
            kafka_cluster.control("Heartbeat", counted)

        def test_faults(kafka_cluster, of_the_module):
            kafka_cluster.control("Produce", lambda request: Drop)
            kafka_cluster.control("Heartbeat", lambda request: Drop)
            kafka_cluster.stop_broker(1)
            kafka_cluster.pause_broker(2)
            kafka_cluster.network.isolate(3, peer=CLIENTS)

        def test_none(kafka_cluster):
            assert kafka_cluster._condition() == ({1, 2, 3}, set(), {broker: {12: counted} for broker in (1, 2, 3)}, frozenset())
            kafka_cluster.produce("t", ["v"])
            assert [each.value for each in kafka_cluster.records("t")] == [b"v"]
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


def test_acls_of_a_test_go_and_come_back(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from kafkacore.admin import Acl, AclFilter, KafkaAdminClient

        pytestmark = pytest.mark.kafka(users={"admin": "a"}, super_users=["admin"], brokers=2)
        KEPT, ADDED = Acl("topic", "kept", "User:a", "read"), Acl("group", "added", "User:a", "read", "10.0.0.1", "deny", "prefixed")

        @pytest.fixture
        def admin(kafka_cluster):
            with KafkaAdminClient(kafka_cluster.client_settings("admin")) as client:
                yield client

        @pytest.fixture(scope="module")
        def of_the_module(kafka_cluster):
            with KafkaAdminClient(kafka_cluster.client_settings("admin")) as client:
                client.create_acls([KEPT]).check()

        def test_changes(of_the_module, admin):
            admin.delete_acls([AclFilter()])
            admin.create_acls([ADDED]).check()

        def test_nothing(of_the_module, admin):
            assert admin.describe_acls() == [KEPT]
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


def test_coroutines_have_the_cluster_of_the_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        @pytest.mark.kafka(topics="t", brokers=2)
        def test_aio(aio_kafka_cluster):
            async def go():
                assert len(aio_kafka_cluster.bootstrap_servers.split(",")) == 2
                assert await aio_kafka_cluster.topics() == {"t": 1}
                await aio_kafka_cluster.produce("t", ["v"])
                assert [each.value for each in await aio_kafka_cluster.records("t")] == [b"v"]
            asyncio.run(go())

        def test_none_left(aio_kafka_cluster):
            assert asyncio.run(aio_kafka_cluster.topics()) == {}
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "function", "problem"),
    [
        ("kafka('orders')", "def test_it(kafka_cluster): pass", "the marker kafka has keywords alone"),
        ("kafka(brokers=3)", "def test_it(): pass", "marked with kafka(...), but no fixture gives it a cluster: add kafka_cluster"),
        ("kafka(broker=3)", "def test_it(kafka_cluster): pass", "unexpected keyword argument 'broker'"),
    ],
)
def test_a_marker_that_says_nothing_is_an_error(pytester: pytest.Pytester, marker: str, function: str, problem: str) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.{marker}\n{function}")
    done = pytester.runpytest_inprocess()
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([f"*{problem.replace('[', '[[]')}*"])


def test_tests_of_a_marked_module_may_need_no_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        pytestmark = pytest.mark.kafka(brokers=2)

        def test_without(): pass

        def test_with(kafka_cluster):
            assert len(kafka_cluster.bootstrap_servers.split(",")) == 2
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize("installed", [True, False])
def test_a_send_that_fails_shows_no_frames_without_source(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    if installed:  # without the sources of the compiled modules
        (tmp_path / "kafkacore").mkdir()
        for each in (ROOT / "kafkacore").iterdir():
            if each.name not in ("native", "__pycache__") and each.suffix not in (".pyx", ".c"):
                (tmp_path / "kafkacore" / each.name).symlink_to(each)
        (tmp_path / "kafkacore" / "testing").unlink()
        shutil.copytree(ROOT / "kafkacore" / "testing", tmp_path / "kafkacore" / "testing")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pytester.makepyfile(
        """
        from kafkacore import KafkaProducer

        def test_send(kafka_cluster):
            with KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
                producer.send("t", 5)
        """
    )
    done = pytester.runpytest_subprocess(timeout=120)
    done.assert_outcomes(failed=1)
    shown = done.stdout.str()
    assert "TypeError: a record's value must be bytes-like, str or None, not int" in shown
    assert ("???" in shown, "append.pxi" in shown) == (False, not installed)
    done.stdout.fnmatch_lines(['>*producer.send("t", 5)'])


def test_a_bare_marker_of_the_same_name_is_none_of_ours(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.kafka\ndef test_it(): pass")
    pytester.runpytest_inprocess("--strict-markers").assert_outcomes(passed=1)
