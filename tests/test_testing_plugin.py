"""The pytest plugin: what it costs a run without Kafka, and its fixtures, in runs of their own."""

from __future__ import annotations

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
