"""Pipelines on Spark's own declarative pipelines (`pyspark.pipelines`): what kafkacore adds to them, and no engine.

In the files of a pipeline:

    from kafkacore.spark.pipeline import expect_or_drop, kafka_options, project_path, topic_sink

Needs the extra `spark` when something of it is called.
"""

from __future__ import annotations

from kafkacore.spark.pipeline.expectations import expect, expect_or_dead_letter, expect_or_drop, expect_or_fail
from kafkacore.spark.pipeline.project import Project, project_path
from kafkacore.spark.pipeline.topics import kafka_options, topic_sink

__all__ = ["Project", "expect", "expect_or_dead_letter", "expect_or_drop", "expect_or_fail", "kafka_options", "project_path", "topic_sink"]
