"""The end of a classic member: LeaveGroup, sent again until the coordinator has answered or has removed the member by itself.

The member has no generation any more and may join again meanwhile: what comes of this request changes nothing but `done`.

Source: Kafka's AbstractCoordinator.maybeLeaveGroup; KIP-800 (reasons).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacore import errors
from kafkacore.consumer.group.membership import COORDINATOR_ERRORS, GroupSettings
from kafkacore.errors import Code
from kafkacore.net.client import ClientResponse
from kafkacore.net.coordinator import CoordinatorLink
from kafkacore.protocol import LeaveGroupRequest
from kafkacore.protocol.group import MemberIdentity


class Departure:
    """A member that leaves.

    Args:
        link: to the coordinator.
        settings: of the member.
        member_id: its name in the group.
        reason: for the broker's log.
        until_ms: nothing is sent from then on: the session has timed out, and the coordinator has removed the member by itself.

    Attributes:
        done: the coordinator has answered, or the time has passed.
    """

    __slots__ = ("_asked", "_failed", "_link", "_member_id", "_reason", "_retry_at_ms", "_settings", "_until_ms", "done")

    def __init__(self, link: CoordinatorLink, settings: GroupSettings, member_id: str, reason: str, until_ms: int) -> None:
        self._link = link
        self._settings = settings
        self._member_id = member_id
        self._reason = reason
        self._until_ms = until_ms
        self._asked: object | None = None
        self._failed = False  # answers carry no time: the next step starts the back-off
        self._retry_at_ms = 0
        self.done = False

    def start_anew(self) -> None:
        """Another network client: what was asked is asked again."""
        self._asked = None

    def step(self, now_ms: int) -> None:
        """Sends LeaveGroup when it can be sent."""
        if self.done:
            return
        if now_ms >= self._until_ms:
            self.done = True
            return
        if self._failed:
            self._failed = False
            self._retry_at_ms = now_ms + self._settings.retry_backoff_ms
        if self._asked is not None or now_ms < self._retry_at_ms or not self._link.ready(now_ms):
            return
        group_id, member_id = self._settings.group_id, self._member_id
        asked = self._asked = object()

        def build(version: int) -> LeaveGroupRequest:
            if version >= 3:
                return LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member_id, reason=self._reason)])
            return LeaveGroupRequest(group_id=group_id, member_id=member_id)

        def answered(response: ClientResponse) -> None:
            if self._asked is not asked:
                return
            self._asked = None
            data: Any = response.response
            code = Code.NOT_COORDINATOR if data is None else data.error_code
            if code in COORDINATOR_ERRORS or code == Code.COORDINATOR_LOAD_IN_PROGRESS:
                self._failed = True
                if data is not None and code in COORDINATOR_ERRORS:
                    api = f"LeaveGroup v{response.version}"
                    self._link.lost(errors.from_code(code, f"group {group_id}, member {member_id!r}", broker=self._link.broker_id, api=api))
            else:
                self.done = True

        self._link.send(LeaveGroupRequest, build, now_ms, answered)

    def waits_ms(self, now_ms: int, until_sent_ms: Callable[[int, int], int]) -> list[int]:
        """When `step` has something to do although no answer comes.

        Args:
            now_ms: the time.
            until_sent_ms: how long until a request can be sent that is due at a time: (due time, now).

        Returns:
            Times from now, ms; the earliest counts.
        """
        if self.done or self._asked is not None:
            return []
        return [0 if self._failed else until_sent_ms(self._retry_at_ms, now_ms), self._until_ms - now_ms]
