"""confluent-kafka's AdminClient, whose calls are in the rooms beside this one.

Source: confluent_kafka.admin.AdminClient, confluent-kafka 2.16.
"""

from __future__ import annotations

from typing import Any

from kafkacore.compat.confluent.admin.configs import ConfigAdmin
from kafkacore.compat.confluent.admin.groups import GroupAdmin
from kafkacore.compat.confluent.admin.security import SecurityAdmin
from kafkacore.compat.confluent.admin.topics import TopicAdmin


class AdminClient(TopicAdmin, ConfigAdmin, GroupAdmin, SecurityAdmin):
    """Manages a cluster. Calls give futures, by item; `request_timeout` is socket.timeout.ms unless it is given.

    Args:
        conf: settings under librdkafka's names; those of producers and consumers have no effect.
        **kwargs: more of them, which count more.

    Raises:
        KafkaException: a setting is unknown, wrong or refused.
    """

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(conf, **kwargs)
