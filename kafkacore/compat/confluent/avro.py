"""Not covered: importing it says why."""

from kafkacore.compat.confluent.not_covered import reason

raise ImportError(reason("avro"))
