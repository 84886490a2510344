"""What the controller's functions share: the image, and what it knows of brokers that is in no record.

Every function of this room that serves a request has the same shape:

    def create_topics(state, request, version, now_ms) -> Written

It reads the state and returns records and a response. It never changes the image: records do that, when they are replayed. What brokers
said last (`Session`) is no part of the image: a controller that starts again asks again.

Source: org.apache.kafka.controller.{ControllerResult, BrokerHeartbeatManager}.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkacore import errors
from kafkacore.broker.cluster import BrokerRegistration, ClusterImage, new_uuid
from kafkacore.broker.controller.placement import ReplicaPlacer
from kafkacore.broker.token_keys import TokenKeys
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, CorruptDataError, KafkaError
from kafkacore.protocol.metadata_log import MetadataRecord
from kafkacore.protocol.schema import Response


class Written(NamedTuple):
    """What a request comes to: records for the log, and the response to be sent once they are written."""

    records: Sequence[MetadataRecord]
    response: Response


@dataclass
class Session:
    """What a broker said last.

    Attributes:
        epoch: of the broker.
        last_contact_ms: when it was heard of.
        metadata_offset: up to where it has applied the metadata log.
        shutdown_offset: where the others must have arrived before it may go; -1 unless it is in a controlled shutdown.
    """

    epoch: int
    last_contact_ms: int
    metadata_offset: int = -1
    shutdown_offset: int = -1


class Requester(NamedTuple):
    """The client whose request a broker passes on.

    Attributes:
        user: its name, as quotas have it.
        client_id: as it calls itself.
    """

    user: str
    client_id: str


class Permits:
    """The partitions that one request may still create and delete. Without a quota for its client: all.

    Attributes:
        throttle_ms: how long the client has to wait.

    Source: kafka.server.{StrictControllerMutationQuota, PermissiveControllerMutationQuota}.
    """

    def __init__(self, take: Callable[[int], tuple[bool, int]] | None = None) -> None:
        """Args:
        take: counts partitions: whether they are within the quota, and how long to wait. None without a quota.
        """
        self._take = take
        self.throttle_ms = 0

    def take(self, partitions: int) -> None:
        """Counts partitions.

        Raises:
            ThrottlingQuotaExceeded: the quota is used up.
        """
        if self._take is not None:
            allowed, self.throttle_ms = self._take(partitions)
            if not allowed:
                raise errors.ThrottlingQuotaExceeded()


@dataclass
class ControllerState:
    """The image and the sessions of the brokers."""

    image: ClusterImage
    config: BrokerConfig
    placer: ReplicaPlacer = field(default_factory=lambda: ReplicaPlacer(random.Random()))
    new_uuid: Callable[[], bytes] = new_uuid
    sessions: dict[int, Session] = field(default_factory=dict)
    permits: Permits = field(default_factory=Permits)
    """Of the request that is being decided."""
    requester: Requester | None = None
    """The client that makes it; None if it comes from a broker."""
    wall_ms: int = 0
    """Time since the epoch, of the request or of what is due."""
    token_keys: TokenKeys | None = None
    """What makes the secrets of delegation tokens; None where they are disabled."""

    def __post_init__(self) -> None:
        if self.config.delegation_token_secret_key:
            self.token_keys = TokenKeys(self.config.delegation_token_secret_key)

    def has_valid_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether a broker was heard of within broker.session.timeout.ms."""
        session = self.sessions.get(broker_id)
        return session is not None and session.epoch == epoch and now_ms - session.last_contact_ms < self.config.broker_session_timeout_ms

    def broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """A broker that makes a request.

        Raises:
            StaleBrokerEpoch: it is not registered, or not under this epoch.

        Source: ClusterControlManager.checkBrokerEpoch.
        """
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise errors.StaleBrokerEpoch(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise errors.StaleBrokerEpoch(f"broker {broker_id} has epoch {broker.epoch}, not {epoch}")
        return broker


def code_of(error: KafkaError) -> Code:
    """The code that tells a client of an error met while serving it."""
    if isinstance(error, CorruptDataError):
        return Code.CORRUPT_MESSAGE
    return Code(error.code) if error.code is not None else Code.UNKNOWN_SERVER_ERROR
