"""kafka-python's calls about groups.

Source: kafka.admin._groups, kafka-python 3.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkacore import errors as ours
from kafkacore import protocol as p
from kafkacore.admin.base import GROUP_KEY
from kafkacore.compat.kafka import errors
from kafkacore.compat.kafka.admin_base import AdminBase, as_dict, check, error_classes
from kafkacore.compat.kafka.admin_types import GroupState, GroupType, MemberToRemove, OffsetSpec, OffsetTimestamp
from kafkacore.compat.kafka.structs import OffsetAndMetadata
from kafkacore.protocol.stored import ConsumerProtocolAssignment, ConsumerProtocolSubscription, decode_stored
from kafkacore.types import TopicPartition

_COORDINATOR = "group_coordinator_id: the coordinator is found by the engine"


def _no_coordinator(given: int | None) -> None:
    if given is not None:
        raise errors.IllegalArgumentError(_COORDINATOR)


class GroupAdmin(AdminBase):
    """The calls about groups."""

    def _of_groups(self, ids: Iterable[str], request: Callable[[list[str]], Any], read: Callable[[Any], Iterable[tuple[str, Any]]]) -> Any:
        """Asks the coordinators of groups."""

        def build(wanted: list[str]) -> tuple[type, Callable[[int], object]]:
            made = request(wanted)
            return type(made), lambda _: made

        with errors.translated():
            return self._admin._ask_coordinators(ids, GROUP_KEY, build, read, self._seconds(None))

    def describe_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None, include_authorized_operations: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Members and states of classic groups, by DescribeGroups.

        Args:
            group_ids: the groups.
            group_coordinator_id: cannot be given: the engine finds it.
            include_authorized_operations: kafka-python asks for them always, and so it is here.
        """
        _no_coordinator(group_coordinator_id)

        def request(ids: list[str]) -> p.DescribeGroupsRequest:
            return p.DescribeGroupsRequest(groups=ids, include_authorized_operations=True)

        def read(response: Any) -> Iterable[tuple[str, Any]]:
            for group in response.groups:
                moved = group.error_code in (14, 15, 16)
                yield group.group_id, ours.from_code(group.error_code, api="DescribeGroups") if moved else _described(group)

        found: dict[str, dict[str, Any]] = self._of_groups(group_ids, request, read).check().succeeded
        return found

    def list_groups(
        self, broker_ids: Iterable[int] | None = None, states_filter: Iterable[Any] | None = None, types_filter: Iterable[Any] | None = None
    ) -> list[dict[str, Any]]:
        """The groups of the cluster.

        Args:
            broker_ids: only those that these brokers coordinate.
            states_filter: GroupStates, or their names; None for all.
            types_filter: GroupTypes, or their names; None for all.
        """
        states = [GroupState.value_for(each) for each in states_filter or ()]
        types = [GroupType.value_for(each) for each in types_filter or ()]
        request = p.ListGroupsRequest(states_filter=states, types_filter=types)
        found = []
        for node_id in self._brokers(broker_ids):
            response = self._send(p.ListGroupsRequest, lambda _: request, node_id=node_id)
            check([(response.error_code, None, "listing groups")])
            found += as_dict(response.groups)
        return found

    def list_group_offsets(self, group_specs: Any) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What groups have committed.

        Args:
            group_specs: groups, or by group the partitions, None for all.
        """
        if isinstance(group_specs, str):
            group_specs = [group_specs]
        if not isinstance(group_specs, dict):
            group_specs = dict.fromkeys(group_specs)
        return {group_id: self._offsets(group_id, partitions) for group_id, partitions in group_specs.items()}

    def _offsets(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        with errors.translated():
            found = self._admin.list_group_offsets(group_id, partitions, timeout=self._seconds(None))
        return {tp: OffsetAndMetadata(-1) if at is None else OffsetAndMetadata.of(at) for tp, at in found.items()}

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Deletes empty groups with their offsets.

        Returns:
            By group "OK" or the name of the error.
        """
        _no_coordinator(group_coordinator_id)
        with errors.translated():
            results = self._admin.delete_groups(group_ids, timeout=self._seconds(None))
        return {group: "OK" if kind is errors.NoError else kind.__name__ for group, kind in error_classes(results).items()}

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, Any]:
        """Commits offsets for a group without members.

        Returns:
            By partition an error class, NoError where it worked.
        """
        _no_coordinator(group_coordinator_id)
        wanted: dict[tuple[str, int], Any] = {tp: OffsetAndMetadata(*at).engines() for tp, at in offsets.items()}
        with errors.translated():
            return error_classes(self._admin.alter_group_offsets(group_id, wanted, timeout=self._seconds(None)))

    def reset_group_offsets(
        self, group_id: str, offset_specs: Mapping[TopicPartition, Any], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Moves committed offsets of a group without members, within what the partitions hold.

        Args:
            group_id: the group.
            offset_specs: by partition an OffsetSpec, an OffsetTimestamp, or an offset.
            group_coordinator_id: cannot be given: the engine finds it.

        Returns:
            By partition {"error": class, "offset": committed}.
        """
        _no_coordinator(group_coordinator_id)
        names = {OffsetSpec.LATEST: "latest", OffsetSpec.EARLIEST: "earliest", OffsetSpec.MAX_TIMESTAMP: "max_timestamp"}
        if not offset_specs:
            return {}
        asked: dict[tuple[str, int], str | int] = {}
        for tp, spec in offset_specs.items():
            if isinstance(spec, OffsetSpec) and spec in names:
                asked[tp] = names[spec]
            elif isinstance(spec, OffsetTimestamp):
                asked[tp] = int(spec)
            elif isinstance(spec, OffsetSpec) or not isinstance(spec, int):
                raise TypeError(f"Unsupported reset target for {tp}: {spec!r} (expected OffsetSpec, OffsetTimestamp, or int offset)")
        current = self._offsets(group_id, offset_specs)
        seconds = self._seconds(None)
        with errors.translated():
            first = self._admin.list_offsets(dict.fromkeys(offset_specs, "earliest"), timeout=seconds).check()
            last = self._admin.list_offsets(dict.fromkeys(offset_specs, "latest"), timeout=seconds).check()
            found = self._admin.list_offsets(asked, timeout=seconds).check()
        wanted = {}
        for tp, spec in offset_specs.items():
            raw = found[tp].offset if tp in asked else int(spec)
            offset = last[tp].offset if raw < 0 else min(max(raw, first[tp].offset), last[tp].offset)
            wanted[tp] = current.get(tp, OffsetAndMetadata())._replace(offset=offset)
        results = self.alter_group_offsets(group_id, wanted)
        return {tp: {"error": kind, "offset": wanted[tp].offset} for tp, kind in results.items()}

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, Any]:
        """Forgets offsets of a group.

        Returns:
            By partition an error class, NoError where it worked.
        """
        _no_coordinator(group_coordinator_id)
        with errors.translated():
            return error_classes(self._admin.delete_group_offsets(group_id, partitions, timeout=self._seconds(None)))

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, Any]:
        """Removes members from a classic group.

        Returns:
            By member id, or instance id without one, an error class, NoError where it worked.
        """
        _no_coordinator(group_coordinator_id)
        leaving = [
            p.MemberIdentity(member_id=each.member_id or "", group_instance_id=each.group_instance_id, reason=each.reason)
            for each in members
        ]
        if not leaving:
            return {}

        def read(response: Any) -> Iterable[tuple[str, Any]]:
            if response.error_code:
                yield group_id, ours.from_code(response.error_code, api="LeaveGroup")
            else:
                yield group_id, {each.member_id or each.group_instance_id: errors.for_code(each.error_code) for each in response.members}

        results = self._of_groups([group_id], lambda _: p.LeaveGroupRequest(group_id=group_id, members=leaving), read)
        with errors.translated():
            found: dict[str, Any] = results[group_id]
        return found


def _described(group: Any) -> dict[str, Any]:
    found: dict[str, Any] = as_dict(group)
    code, message = found.pop("error_code"), found.pop("error_message", None)
    found["error"] = str(errors.for_code(code)(message or "")) if code else None
    for member, raw in zip(found["members"], group.members, strict=True):
        if raw.member_metadata:
            member["member_metadata"] = as_dict(decode_stored(ConsumerProtocolSubscription, raw.member_metadata))
        if raw.member_assignment:
            member["member_assignment"] = as_dict(decode_stored(ConsumerProtocolAssignment, raw.member_assignment))
    return found
