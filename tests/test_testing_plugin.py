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


def test_the_marker_says_which_cluster_and_which_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        clusters = []

        def seen(cluster):
            clusters.append(cluster.cluster_id)
            return len(set(clusters))

        @pytest.mark.kafkacore(topics={"orders": 4, "refunds": 1}, brokers=3, configs={"min.insync.replicas": 2})
        def test_three(kafka_cluster, request):
            assert kafka_cluster.topics() == {"orders": 4, "refunds": 1}
            assert len(kafka_cluster.bootstrap_servers.split(",")) == 3
            assert kafka_cluster.config.min_insync_replicas == 2
            assert request.node.name == "test_three"
            assert seen(kafka_cluster) == 1

        @pytest.mark.kafkacore(topics="orders", configs={"min.insync.replicas": 2}, brokers=3)
        def test_the_same_three(kafka_cluster):
            assert kafka_cluster.topics() == {"orders": 1}
            assert seen(kafka_cluster) == 1

        @pytest.mark.kafkacore(topics=["a", "b"])
        def test_one(kafka_cluster, kafka_topic):
            assert kafka_cluster.topics() == {"a": 1, "b": 1, kafka_topic: 1}
            kafka_cluster.delete_topic(kafka_topic)
            assert len(kafka_cluster.bootstrap_servers.split(",")) == 1
            assert seen(kafka_cluster) == 2

        @pytest.mark.kafkacore(brokers=2, topics="t")
        class TestOfTwo:
            def test_of_the_class(self, kafka_cluster):
                assert len(kafka_cluster.bootstrap_servers.split(",")) == 2
                assert kafka_cluster.topics() == {"t": 1}

            def test_that_needs_none(self): pass

            @pytest.mark.kafkacore(topics="u")
            def test_the_nearest_counts(self, kafka_cluster):
                assert len(kafka_cluster.bootstrap_servers.split(",")) == 2
                assert kafka_cluster.topics() == {"u": 1}
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=6)


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
        @pytest.mark.kafkacore(topics="marked")
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

        pytestmark = pytest.mark.kafkacore(brokers=3, faults=True)

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

        pytestmark = pytest.mark.kafkacore(users={"admin": "a"}, super_users=["admin"], brokers=2)
        KEPT = [Acl("topic", "kept", "User:a", "read"), Acl("topic", "too", "User:a", "read")]
        ADDED = [Acl("group", name, "User:a", "read", "10.0.0.1", "deny", "prefixed") for name in ("added", "beside")]

        @pytest.fixture
        def admin(kafka_cluster):
            with KafkaAdminClient(kafka_cluster.client_settings("admin")) as client:
                yield client

        @pytest.fixture(scope="module")
        def of_the_module(kafka_cluster):
            with KafkaAdminClient(kafka_cluster.client_settings("admin")) as client:
                client.create_acls(KEPT).check()

        def test_changes(of_the_module, admin):
            admin.delete_acls([AclFilter()])
            admin.create_acls(ADDED).check()

        def test_nothing(of_the_module, admin):
            assert sorted(admin.describe_acls()) == KEPT
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "function", "problem"),
    [
        ("kafkacore('orders')", "def test_it(kafka_cluster): pass", "the marker kafkacore has keywords alone"),
        ("kafka('orders')", "def test_it(kafka_cluster): pass", "the marker kafka has keywords alone"),
        ("kafkacore(brokers=3)", "def test_it(): pass", "but no fixture gives it kafkacore's cluster: add kafka_cluster"),
        ("kafkacore(topic='t')", "def test_it(kafka_cluster): pass", "the marker kafkacore has no topic: did you mean topics?"),
        ("kafka(broker=3)", "def test_it(kafka_topic): pass", "the marker kafkacore has no broker: did you mean brokers?"),
        ("kafkacore(x=3)", "def test_it(aio_kafka_cluster): pass", "the marker kafkacore has no x: it has topics, brokers, data_dir"),
        (
            "parametrize('n', [pytest.param(1, marks=pytest.mark.kafkacore(brokers=3))])",
            "def test_it(kafka_cluster, n): pass",
            "brokers: a marker of a test, class or module says what the cluster is to be",
        ),
    ],
)
def test_a_marker_that_cannot_be_followed_fails_its_test_alone(pytester: pytest.Pytester, marker: str, function: str, problem: str) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.{marker}\n{function}\ndef test_beside_it(): pass")
    done = pytester.runpytest_inprocess()
    done.assert_outcomes(errors=1, passed=1)
    done.stdout.fnmatch_lines([f"*{problem.replace('[', '[[]')}*"])


@pytest.mark.parametrize("fixture", ["kafka_cluster", "kafka_topic"])
def test_a_marker_beside_a_fixture_of_the_project_s_own(pytester: pytest.Pytester, fixture: str) -> None:
    own = "@pytest.fixture\ndef kafka_cluster(): return 'mine'"
    pytester.makepyfile(f"import pytest\n{own}\n@pytest.mark.kafkacore(topics='t')\ndef test_it({fixture}): pass")
    done = pytester.runpytest_inprocess()
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*its kafka_cluster is the project's own: *def kafka_cluster(kafka_cluster)*"])


def test_the_old_name_of_the_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        pytestmark = pytest.mark.kafka(brokers=2, topics="t")

        @pytest.mark.kafkacore(topics="u")
        def test_both(kafka_cluster):
            assert len(kafka_cluster.bootstrap_servers.split(",")) == 2
            assert kafka_cluster.topics() == {"u": 1}

        def test_old(kafka_cluster):
            assert kafka_cluster.topics() == {"t": 1}
        """
    )
    pytester.runpytest_inprocess("--strict-markers").assert_outcomes(passed=2)


def test_fixtures_and_markers_of_another_project_are_left_alone(pytester: pytest.Pytester) -> None:
    """Installing kafkacore must not change the tests of a project that has used the same names before."""
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def kafka_cluster():
            return "of docker compose"

        @pytest.fixture
        def kafka_topic(kafka_cluster):
            return "t of " + kafka_cluster
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kafka("needs a broker", version="3.5")
        def test_plain(): pass

        @pytest.mark.kafka("needs a broker", version="3.5", brokers=3)
        def test_cluster(kafka_cluster, request):
            assert kafka_cluster == "of docker compose"
            assert not hasattr(request, "param")

        @pytest.mark.kafka(topics=["orders"])
        def test_topic(kafka_topic):
            assert kafka_topic == "t of of docker compose"

        @pytest.mark.usefixtures("kafka_cluster")
        @pytest.mark.kafka(topics=1)
        class TestOfAClass:
            def test_in_it(self, request):
                assert request.node.fixturenames == ["kafka_cluster", "request"]

        @pytest.mark.kafka(brokers=2)
        @pytest.mark.parametrize("kafka_cluster", ["old", "new"])
        def test_values(kafka_cluster):
            assert kafka_cluster in ("old", "new")

        class TestWithAFixtureOfItsOwn:
            @pytest.fixture
            def kafka_cluster(self):
                return 5

            def test_in_it(self, kafka_cluster):
                assert kafka_cluster == 5

        def test_that_kafkacore_was_not_loaded():
            import sys
            assert "kafkacore.testing.cluster" not in sys.modules
        """
    )
    pytester.runpytest_subprocess("--strict-markers", timeout=120).assert_outcomes(passed=8)


def test_clusters_of_the_project_with_ours_and_in_its_place(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture
        def kafka_cluster(kafka_cluster):
            kafka_cluster.create_topic("of-the-project")
            return kafka_cluster.bootstrap_servers
        """
    )
    pytester.makepyfile(
        """
        import pytest
        from kafkacore import KafkaAdminClient
        from kafkacore.testing import EmbeddedCluster

        @pytest.mark.kafkacore(brokers=2, topics="t")
        def test_asks_for_ours(kafka_cluster, kafka_topic):
            assert len(kafka_cluster.split(",")) == 2
            with KafkaAdminClient(bootstrap_servers=kafka_cluster) as admin:
                assert set(admin.list_topics()) == {"of-the-project", "t", kafka_topic}

        class TestStr:
            @pytest.fixture
            def kafka_cluster(self):
                return "localhost:9092"

            def test_topic(self, kafka_topic): pass

        class TestEmbedded:
            @pytest.fixture
            def kafka_cluster(self):
                with EmbeddedCluster() as cluster:
                    yield cluster

            def test_topic(self, kafka_cluster, kafka_topic):
                assert kafka_cluster.topics() == {kafka_topic: 1}
        """
    )
    done = pytester.runpytest_inprocess()
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["*kafka_topic needs an EmbeddedCluster, and the fixture kafka_cluster of this test gives a str*"])


def test_a_send_that_fails_shows_no_frames_without_source(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As installed: without the sources of the compiled modules."""
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
    assert "???" not in shown and "append.pxi" not in shown
    done.stdout.fnmatch_lines(['>*producer.send("t", 5)'])
