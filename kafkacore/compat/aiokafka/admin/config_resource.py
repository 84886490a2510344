"""What has settings."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class ConfigResourceType(IntEnum):
    """Kinds of what has settings."""

    BROKER = 4
    TOPIC = 2


class ConfigResource:
    """A topic or broker, and settings of it.

    Args:
        resource_type: ConfigResourceType, or its name.
        name: of the topic, or the broker's id.
        configs: values by name; to describe, names alone count, and None asks for all.
    """

    def __init__(self, resource_type: Any, name: str, configs: dict[str, Any] | None = None) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            resource_type = ConfigResourceType[str(resource_type).upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs
