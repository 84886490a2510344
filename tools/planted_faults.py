"""Planted faults: plants a known mistake in a copy of the checkout and runs the tests that have to notice it.

Where tools/mutants.py changes the code at random, these faults were chosen by reading it: mostly the second of something, or a neighbour,
is forgotten. Anyone who changes one of these places, or its tests, may ask whether the mistake would still be seen.

    python tools/planted_faults.py second-group prefix-search
    python tools/planted_faults.py --room ACLs --json

Without names and rooms all of them are planted, one at a time. Exits 1 if one is not noticed. tests/test_planted_faults.py holds that each
place is still there.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from mutants import copy_of_the_checkout


class Fault(NamedTuple):
    """A mistake: `old`, which stands once in a file, becomes `new`; one of the tests notices it."""

    name: str
    room: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


# fmt: off
FAULTS = (
    Fault(
        "commit-in-loop", "groups client", "commit() within a for loop commits one record too far",
        "kafkacore/consumer/group/member.py",
        "                found[tp] = OffsetAndMetadata(offset, leader_epoch=epoch if epoch >= 0 else None)\n            elif",
        "                found[tp] = OffsetAndMetadata(offset + 1, leader_epoch=epoch if epoch >= 0 else None)\n            elif",
        ("tests/consumer/test_commits_beside_automatic_ones.py",),
    ),
    Fault(
        "interrupted-order", "groups client", "after an interrupt, commits that wait overtake those that were sent",
        "kafkacore/consumer/group/commits.py",
        "deque([*self._flying, *self._waiting]), deque()",
        "deque([*self._waiting, *self._flying]), deque()",
        ("tests/consumer/test_commits_of_old_generations.py", "tests/consumer/test_group_interrupts.py"),
    ),
    Fault(
        "old-heartbeat", "groups client", "an error for the last generation's heartbeat ends the new generation",
        "kafkacore/consumer/group/classic.py",
        "elif generation != self._generation or self.phase is Phase.JOINING:",
        "elif self.phase is Phase.JOINING:",
        (
            "tests/consumer/test_classic_membership.py",
            "tests/consumer/test_group_driving.py",
            "tests/consumer/test_groups.py",
            "tests/consumer/test_second_failures_of_members.py",
        ),
    ),
    Fault(
        "kept-topic", "groups client", "cooperative: a topic that is no longer subscribed to is kept",
        "kafkacore/consumer/group/classic.py",
        "            revoked = frozenset(tp for tp in owned if tp.topic not in topics)",
        "            revoked = _NONE",
        ("tests/consumer/test_classic_membership.py", "tests/consumer/test_groups.py"),
    ),
    Fault(
        "pending-expires", "groups broker", "an offset expires although an open transaction has another one",
        "kafkacore/broker/groups/offsets.py",
        " and not self.is_pending(group_id, *key)\n",
        "\n",
        ("tests/broker/test_group_offsets.py", "tests/broker/test_coordinator.py", "tests/broker/test_coordinator_deadlines.py"),
    ),
    Fault(
        "second-group", "transactions client", "before version 2, the second group of a transaction is not added",
        "kafkacore/producer/transactions.py",
        "step.group.group_id not in at.groups:",
        "not at.groups:",
        (
            "tests/producer/test_transactions_engine.py",
            "tests/producer/test_transactions_model.py",
            "tests/producer/test_transactions_sender.py",
        ),
    ),
    Fault(
        "aio-deadline", "aio", "the timer of a deadline stays when its call has ended",
        "kafkacore/aio/calls.py",
        (
            "            return await self._outcome_of(job, ended, loop)  # type: ignore[no-any-return]\n"
            "        finally:\n"
            "            deadline.cancel()"
        ),
        (
            "            return await self._outcome_of(job, ended, loop)  # type: ignore[no-any-return]\n"
            "        finally:\n"
            "            pass"
        ),
        ("tests/aio/test_aio_deadlines.py", "tests/aio/test_aio_waiters.py"),
    ),
    Fault(
        "cut-short-reports", "confluent", "reports that a raising callback has cut short come after later events",
        "kafkacore/compat/confluent/events.py",
        "event = self._cut_short.popleft() if self._cut_short else self._queue.get(block=False)",
        "event = self._queue.get(block=False) if self._queue.qsize() else self._cut_short.popleft()",
        ("tests/compat/test_confluent_events.py", "tests/compat/test_confluent_reports.py"),
    ),
    Fault(
        "header-characters", "kafka-python", "serialized_header_size counts characters for bytes",
        "kafkacore/compat/kafka/structs.py",
        'sum(len(name.encode()) + len(value or b"") for name',
        'sum(len(name) + len(value or b"") for name',
        ("tests/compat/test_kafka_records.py",),
    ),
    Fault(
        "load-undelivered", "CLI", "load exits 0 although rows were refused",
        "kafkacore/cli/frames.py",
        (
            "    if known.errors:\n"
            "        row = min"
        ),
        (
            "    if False:\n"
            "        row = min"
        ),
        ("tests/cli/test_load.py",),
    ),
    Fault(
        "load-empty-text", "CLI", "load takes a quoted empty text of a CSV file for null",
        "kafkacore/cli/frames.py",
        "quoted_strings_can_be_null=False",
        "quoted_strings_can_be_null=True",
        ("tests/cli/test_load.py",),
    ),
    Fault(
        "reader-failed", "CLI", "a group reader whose commit failed exits 0",
        "kafkacore/cli/member.py",
        (
            "        if reader.failed and not stop.signal:\n"
            "            raise typer.Exit(1)\n"
        ),
        "",
        ("tests/cli/test_group_commands.py", "tests/cli/test_record_commands.py", "tests/cli/test_rough_handling.py"),
    ),
    Fault(
        "prefix-search", "ACLs", "the search for prefixes stops at a neighbour that is none",
        "kafkacore/broker/authorizer.py",
        "                at = bisect_right(prefixes, key, 0, at) - 1",
        "                break",
        ("tests/broker/test_authorizer.py", "tests/broker/test_acls.py"),
    ),
    Fault(
        "whole-name-prefix", "ACLs", "allows_some overlooks a DENY on a prefix that is the whole name",
        "kafkacore/broker/authorizer.py",
        "for beginning in itertools.accumulate(name)):",
        "for beginning in itertools.accumulate(name[:-1])):",
        ("tests/broker/test_authorizer.py", "tests/broker/test_acls.py"),
    ),
    Fault(
        "key-file-alone", "TLS", "a key file that changes alone is not read again",
        "kafkacore/config_tls.py",
        (
            "for each in (settings.ca, settings.own, settings.key) if each.path is not None]\n"
            "        self._seen"
        ),
        (
            "for each in (settings.ca, settings.own) if each.path is not None]\n"
            "        self._seen"
        ),
        ("tests/test_config_tls.py", "tests/security/test_tls_listener_life.py"),
    ),
    Fault(
        "acks-0-time", "quotas", "a write with acks=0 counts against request time",
        "kafkacore/broker/throttling.py",
        (
            "            if request.acks != 0:\n"
            "                waits[REQUEST]"
        ),
        (
            "            if True:\n"
            "                waits[REQUEST]"
        ),
        ("tests/broker/test_quotas.py", "tests/broker/test_throttling.py"),
    ),
    Fault(
        "some-given-up", "groups client", "a late commit is sent if only some of its partitions were given up",
        "kafkacore/consumer/group/commits.py",
        "            if gone or member.generation_id < 0:",
        "            if len(gone) == len(commit.offsets) or member.generation_id < 0:",
        ("tests/consumer/test_commits_of_old_generations.py",),
    ),
    Fault(
        "lost-taken", "groups client", "offsets of a topic that was lost before the answer count as committed",
        "kafkacore/consumer/group/commits.py",
        "if tp not in commit.refused and tp not in lost})",
        "if tp not in commit.refused})",
        ("tests/consumer/test_topics_created_again.py",),
    ),
    Fault(
        "under-way-last", "groups client", "of two commits of a partition under way the first counts",
        "kafkacore/consumer/group/commits.py",
        "for commit in (*self._flying, *self._waiting) for tp",
        "for commit in (*self._waiting, *self._flying) for tp",
        ("tests/consumer/test_commits_of_old_generations.py",),
    ),
    Fault(
        "second-open-transaction", "groups broker", "the end of one transaction ends the pending offset of another",
        "kafkacore/broker/groups/offsets.py",
        (
            "                    if not owners:\n"
            "                        _take(self._open"
        ),
        (
            "                    if True:\n"
            "                        _take(self._open"
        ),
        ("tests/broker/test_group_offsets.py",),
    ),
    Fault(
        "two-uncommitted", "groups broker", "of two offsets that are not committed the first one is shown",
        "kafkacore/broker/groups/offsets.py",
        "                then[at] = values[0]",
        "                then[at] = values[-1]",
        ("tests/broker/test_group_offsets.py",),
    ),
    Fault(
        "owned-in-part", "groups broker", "a member of the last epoch may hold a partition that it was not given",
        "kafkacore/broker/groups/consumer_membership.py",
        "        if all(partition in member.assigned.get(topic_id, {})",
        "        if any(partition in member.assigned.get(topic_id, {})",
        ("tests/broker/test_consumer_groups.py",),
    ),
    Fault(
        "committed-then-fenced", "transactions client", "a commit fails because of what came after its EndTxn",
        "kafkacore/producer/transactions.py",
        "if ask.kind is Kind.INIT and at.phase is Phase.DECIDING:",
        "if ask.kind is Kind.INIT and at.phase is Phase.COMMITTING:",
        ("tests/producer/test_transactions_engine.py",),
    ),
    Fault(
        "prepared-without-bump", "transactions client", "a prepared transaction of version 1 gets no new epoch afterwards",
        "kafkacore/producer/transactions.py",
        "last=ask.step, bump=at.bump or not at.adds_by_writing))",
        "last=ask.step, bump=at.bump))",
        ("tests/producer/test_transactions_engine.py",),
    ),
    Fault(
        "two-markers", "transactions broker", "of two markers of a producer in a request one is answered",
        "kafkacore/broker/txns/markers.py",
        "by_producer.setdefault(marker.producer_id, {}).update(outcome)",
        "by_producer[marker.producer_id] = outcome",
        ("tests/broker/test_txn_markers.py",),
    ),
    Fault(
        "marker-lost", "transactions broker", "a second marker of a producer takes the first one's place in a request",
        "kafkacore/broker/txns/markers.py",
        (
            "            if pending.is_slow is not slow or chosen.setdefault(pending.prepared.producer_id, part) is not part:\n"
            "                held.append(part)"
        ),
        (
            "            if pending.is_slow is not slow:\n"
            "                held.append(part)\n"
            "            else:\n"
            "                chosen[pending.prepared.producer_id] = part"
        ),
        ("tests/broker/test_txn_markers.py",),
    ),
    Fault(
        "expired-epoch", "transactions broker", "the last epoch of an expired transactional id is remembered",
        "kafkacore/broker/txns/shard.py",
        "            self.last_epochs.pop(transactional_id, None)\n",
        "",
        ("tests/broker/test_txn_shard.py",),
    ),
    Fault(
        "two-closers", "aio", "of two tasks that close a client one is woken",
        "kafkacore/aio/calls.py",
        (
            "        for woken in waiting:\n"
            "            woken()"
        ),
        (
            "        for woken in waiting[:1]:\n"
            "            woken()"
        ),
        ("tests/aio/test_aio_clients.py",),
    ),
    Fault(
        "thread-stays", "aio", "a client that is closed while a poll serves others keeps its thread",
        "kafkacore/aio/calls.py",
        (
            "                self._jobs.put(None)\n"
            "                return"
        ),
        "                return",
        ("tests/aio/test_aio_clients.py",),
    ),
    Fault(
        "stored-replaced", "confluent", "a second store_offsets forgets the first one's partition",
        "kafkacore/compat/confluent/consumer.py",
        "self._stored |= stored",
        "self._stored = stored",
        ("tests/compat/test_confluent_behaviour.py",),
    ),
    Fault(
        "committed-kept", "confluent", "what was committed is remembered over a rebalance",
        "kafkacore/compat/confluent/consumer.py",
        (
            "        for known in (self._handed, self._stored, self._committed, self._not_at_end):\n"
            "            for tp in"
        ),
        (
            "        for known in (self._handed, self._stored, self._not_at_end):\n"
            "            for tp in"
        ),
        ("tests/compat/test_confluent_behaviour.py",),
    ),
    Fault(
        "behind-a-failure", "kafka-python", "records of the partitions behind one that cannot be deserialized are lost",
        "kafkacore/compat/kafka/consumer.py",
        (
            "                self._consumer.seek(tp, records[0].offset)\n"
            "                continue"
        ),
        "                continue",
        ("tests/compat/test_kafka_iterating.py",),
    ),
    Fault(
        "wants-all", "aiokafka", "a task that reads all partitions waits only for those of another one",
        "kafkacore/compat/aiokafka/reading.py",
        "frozenset() if not all(wanted) else",
        "frozenset() if not any(wanted) else",
        ("tests/compat/test_aiokafka_reading.py",),
    ),
    Fault(
        "paused-while-held", "aiokafka", "a pause of a partition that is held back does not last",
        "kafkacore/compat/aiokafka/reading.py",
        "        self._held_back.difference_update(tps)\n",
        "",
        ("tests/compat/test_aiokafka_reading.py",),
    ),
    Fault(
        "sent-again", "legacy", "what was sent before a failure is sent again",
        "kafkacore/legacy/event_handler.py",
        "left += of_partition[failure.sent :]",
        "left += of_partition",
        ("tests/legacy/test_legacy_event_handler.py",),
    ),
    Fault(
        "one-is-fatal", "legacy", "one fatal error among others does not end the tries",
        "kafkacore/legacy/event_handler.py",
        "and not any(cause.fatal for cause",
        "and not all(cause.fatal for cause",
        ("tests/legacy/test_legacy_event_handler.py",),
    ),
    Fault(
        "row-of-slice", "frames", "the number of a row without a key is that in its slice",
        "kafkacore/producer/frames.py",
        "row = first_row + _first_null(keys)",
        "row = _first_null(keys)",
        ("tests/data/test_send_frame.py",),
    ),
    Fault(
        "new-column", "frames", "a column that comes with a later batch is left out silently",
        "kafkacore/producer/frames.py",
        "sorted(before ^ now)",
        "sorted(before - now)",
        ("tests/data/test_send_frame.py",),
    ),
    Fault(
        "fourth-partition", "CLI", "the fourth partition is printed although the second could not be",
        "kafkacore/cli/member.py",
        "stopped = stopped or written < len(chosen.lines)",
        "stopped = written < len(chosen.lines)",
        ("tests/cli/test_group_commands.py",),
    ),
    Fault(
        "cluster-prefixed", "CLI", "an entry for the cluster beside prefixed ones is prefixed, too",
        "kafkacore/cli/acls.py",
        '"literal" if kind == "cluster" else pattern_type)',
        "pattern_type)",
        ("tests/cli/test_admin_commands.py",),
    ),
    Fault(
        "line-of-chunk", "CLI", "the line that cannot be sent is counted from its chunk",
        "kafkacore/cli/records.py",
        '                                line_number += len(call["values"])\n',
        "",
        ("tests/cli/test_record_commands.py",),
    ),
    Fault(
        "second-groups-error", "admin", "one by one, the error of the last group hides the others'",
        "kafkacore/admin/groups.py",
        "failed |= results.errors",
        "failed = results.errors",
        ("tests/test_admin_parts.py",),
    ),
    Fault(
        "one-lookup-fails", "admin", "one by one, a look-up that fails hides the coordinators found before",
        "kafkacore/admin/base.py",
        "found |= dict.fromkeys(batch, asked.error)",
        "found |= dict.fromkeys(keys, asked.error)",
        ("tests/test_admin_parts.py",),
    ),
    Fault(
        "second-acl-left", "ACLs", "an operation stays allowed while its principal has another ACL there",
        "kafkacore/broker/authorizer.py",
        "            self._bits[key] = _bits(left.values())\n",
        "            pass\n",
        ("tests/broker/test_authorizer.py",),
    ),
    Fault(
        "prefixes-forgotten", "ACLs", "the last ACL of a prefix takes all other prefixes with it",
        "kafkacore/broker/authorizer.py",
        "del self._prefixes[bisect_left(self._prefixes, acl.resource_name)]",
        "self._prefixes.clear()",
        ("tests/broker/test_authorizer.py",),
    ),
    Fault(
        "one-denied-name", "ACLs", "allows_some gives up at the first name that is denied",
        "kafkacore/broker/authorizer.py",
        (
            "            if kind == LITERAL and (LITERAL, name) in denied:\n"
            "                continue"
        ),
        (
            "            if kind == LITERAL and (LITERAL, name) in denied:\n"
            "                return False"
        ),
        ("tests/broker/test_authorizer.py",),
    ),
    Fault(
        "second-intermediate", "TLS", "of a PKCS12 file's chain only the first authority is shown",
        "kafkacore/config_tls.py",
        "for each in (found.cert, *found.additional_certs) if",
        "for each in (found.cert, *found.additional_certs[:1]) if",
        ("tests/test_config_tls.py",),
    ),
    Fault(
        "shared-default", "quotas", "all users share the default user's quota",
        "kafkacore/broker/quotas.py",
        "((None, ABSENT), (user, ABSENT)),",
        "((None, ABSENT), (None, ABSENT)),",
        ("tests/broker/test_quotas.py",),
    ),
    Fault(
        "mutation-quota-alone", "quotas", "a quota over mutations alone is not seen",
        "kafkacore/broker/throttling.py",
        "self.request or self.mutation)",
        "self.request)",
        ("tests/broker/test_throttling.py",),
    ),
    Fault(
        "second-throttle", "network", "a second, shorter throttle time ends the first",
        "kafkacore/net/client.py",
        "max(connection.throttled_until_ms, now_ms + throttle_ms)",
        "now_ms + throttle_ms",
        ("tests/net/test_network_client.py",),
    ),
    Fault(
        "second-lookup", "network", "of two connections that wait for a host's addresses one goes on",
        "kafkacore/net/client.py",
        "if one.state == RESOLVING and self._hosts[one.node_id] == host]",
        "if one.state == RESOLVING and self._hosts[one.node_id] == host][:1]",
        ("tests/net/test_waiting.py",),
    ),
    Fault(
        "second-expiry", "producer", "of two batches under way the first expires with the last",
        "kafkacore/producer/sender.py",
        (
            "self._in_flight_expiry_ms = min(\n"
            "                (batch.created_ms + timeout_ms"
        ),
        (
            "self._in_flight_expiry_ms = max(\n"
            "                (batch.created_ms + timeout_ms"
        ),
        ("tests/producer/test_sender.py",),
    ),
    Fault(
        "bump-under-way", "producer", "numbers change under a batch that is on the wire to a second partition",
        "kafkacore/producer/txn.py",
        "any(batch.in_flight for queue in self._bump_for for batch",
        "any(batch.in_flight for queue in list(self._bump_for)[:1] for batch",
        ("tests/producer/test_sender_numbers.py",),
    ),
    Fault(
        "second-answer", "fetcher", "of two answers of a partition in one poll the first is lost",
        "kafkacore/consumer/fetcher.py",
        "taken[tp] = before + records",
        "taken[tp] = records",
        ("tests/consumer/test_fetcher.py",),
    ),
    Fault(
        "second-follower", "fetcher", "a second partition is still read from a follower that does not answer",
        "kafkacore/consumer/fetcher.py",
        (
            "            for state in states:\n"
            "                if state.preferred_replica >= 0:"
        ),
        (
            "            for state in states[:1]:\n"
            "                if state.preferred_replica >= 0:"
        ),
        ("tests/consumer/test_fetcher.py",),
    ),
    Fault(
        "group-not-placed", "log", "a log counts as clean although a cleaned segment was not put in place",
        "kafkacore/broker/log/compactor.py",
        "                    all_placed = False\n",
        "",
        ("tests/broker/test_compaction.py",),
    ),
    Fault(
        "behind-full-map", "log", "records behind those that the key map holds are taken for cleaned",
        "kafkacore/broker/log/cleaner.py",
        "            if offset > keys.latest_offset:\n",
        "            if False:\n",
        ("tests/broker/test_compaction.py",),
    ),
    Fault(
        "old-proposal", "replication", "a proposal that is tried again hides a newer one",
        "kafkacore/broker/isr.py",
        "{**sent, **self._waiting}",
        "{**self._waiting, **sent}",
        ("tests/broker/test_isr_proposals.py",),
    ),
    Fault(
        "left-out-proposal", "replication", "a proposal that an answer leaves out is never refused",
        "kafkacore/broker/isr.py",
        (
            "            if proposal.stands:\n"
            "                proposal.partition"
        ),
        (
            "            if not outcome.topics and proposal.stands:\n"
            "                proposal.partition"
        ),
        ("tests/broker/test_isr_proposals.py",),
    ),
    Fault(
        "same-index", "controller", "the same partition number of two topics counts as named twice",
        "kafkacore/broker/controller/partitions.py",
        (
            "    for asked_topic in request.topics:\n"
            "        topic = state.image.topics_by_id.get(asked_topic.topic_id)\n"
            "        answers = []\n"
            "        seen: set[int] = set()\n"
        ),
        (
            "    seen: set[int] = set()\n"
            "    for asked_topic in request.topics:\n"
            "        topic = state.image.topics_by_id.get(asked_topic.topic_id)\n"
            "        answers = []\n"
        ),
        ("tests/broker/test_controller.py",),
    ),
    Fault(
        "bytes-twice", "timers", "a partition that a waiting fetch looks at again counts twice",
        "kafkacore/broker/delayed.py",
        "self._total += available - self._available.get(key, 0)",
        "self._total += available",
        ("tests/broker/test_fetch_sessions.py",),
    ),
    Fault(
        "second-outcome", "timers", "what is known behind an open outcome is answered as timed out",
        "kafkacore/broker/delayed.py",
        "                pending = True\n",
        "                return False\n",
        ("tests/broker/test_handlers.py",),
    ),
    Fault(
        "last-reason", "decode", "of two bad fields the last one is named",
        "kafkacore/decode/jsons.py",
        (
            "        except v.FAULTS as error:\n"
            "            why = why or v.reason(error)"
        ),
        (
            "        except v.FAULTS as error:\n"
            "            why = v.reason(error)"
        ),
        ("tests/decode/test_decode_text.py",),
    ),
    Fault(
        "row-of-doubtful", "decode", "a fault names the row among the doubtful ones",
        "kafkacore/decode/jsons.py",
        "(int(where[row]), why) for",
        "(row, why) for",
        ("tests/decode/test_json_columns.py",),
    ),
    Fault(
        "dropped-partition", "Spark offsets", "a partition that is not read any more is dropped from a query's offsets",
        "kafkacore/spark/offsets.py",
        "        return {**begin, **{each: max(",
        "        return {**{each: max(",
        ("tests/spark/test_offsets.py",),
    ),
    Fault(
        "consumer-behind-a-failure", "fetcher", "records of the partitions behind one that cannot be deserialized are lost",
        "kafkacore/consumer/deserializers.py",
        (
            "                self._subscription.rewind(tp, records[0].offset)\n"
            "                continue"
        ),
        "                continue",
        ("tests/consumer/test_kafka_consumer.py",),
    ),
    Fault(
        "aiokafka-behind-a-failure", "aiokafka", "records of the partitions behind one that cannot be deserialized are lost",
        "kafkacore/compat/aiokafka/consumer/consumer.py",
        (
            "                self._engine.seek(tp, records[0].offset)\n"
            "                continue"
        ),
        "                continue",
        ("tests/compat/test_aiokafka_reading.py",),
    ),
    Fault(
        "others-asleep", "aiokafka", "of the tasks that wait beside the one that reads, the first one alone is woken",
        "kafkacore/compat/aiokafka/reading.py",
        "        for woken in others.values():\n",
        "        for woken in list(others.values())[:1]:\n",
        ("tests/compat/test_aiokafka_reading.py",),
    ),
    Fault(
        "revoked-in-part", "groups broker", "a member that has given one of two topics up counts as done",
        "kafkacore/broker/groups/reconcile.py",
        "for topic_id, partitions in self.owned.items() for partition in partitions)",
        "for topic_id, partitions in [*self.owned.items()][:1] for partition in partitions)",
        ("tests/broker/test_consumer_groups.py",),
    ),
    Fault(
        "one-registry-lags", "registry", "one of two registries that lacks a schema is believed",
        "kafkacore/decode/registry.py",
        "if unknown == len(access.bases) and not patient:",
        "if unknown and not patient:",
        ("tests/decode/test_registry.py",),
    ),
    Fault(
        "two-versions", "registry", "two versions of a subject that a schema refers to are one",
        "kafkacore/decode/registry.py",
        "self._known.get((subject, version))",
        "next((each for (name, _), each in self._known.items() if name == subject), None)",
        ("tests/decode/test_registry.py",),
    ),
    Fault(
        "third-listener", "config", "the ports of the second and third listener are not compared",
        "kafkacore/config_listeners.py",
        "for other in found[:at]:",
        "for other in found[: min(at, 1)]:",
        ("tests/broker/test_listeners.py",),
    ),
    Fault(
        "continued-twice", "config", "a line of a properties file that goes on twice ends after the first",
        "kafkacore/config_properties.py",
        "while _CONTINUED.search(line):",
        "if _CONTINUED.search(line):",
        ("tests/cli/test_setting_files.py",),
    ),
)
# fmt: on


def planted(fault: Fault, copy: Path, limit_s: int) -> dict[str, Any]:
    """Runs the tests of a fault with the fault in place.

    Args:
        fault: which.
        copy: of the checkout, which is as before afterwards.
        limit_s: seconds that one test may take.

    Returns:
        What the table says of it, whether it was noticed, by which test, and after how many seconds.
    """
    path = copy / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.name}: the text to change does not stand once in {fault.file}")
    python = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--benchmark-disable"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "KAFKACORE_SAME_EXAMPLES": "1"}
    began = time.monotonic()
    path.write_text(text.replace(fault.old, fault.new))
    try:
        command = [*python, "--timeout", str(limit_s), "-m", "not kafka", *fault.tests]
        run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    finally:
        path.write_text(text)
    if run.returncode not in (0, 1, 2):  # 1: a test failed; 2: a file of tests could not be imported
        raise SystemExit(f"{fault.name}: pytest ends with {run.returncode}\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
    by = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return {
        "name": fault.name,
        "room": fault.room,
        "what": fault.what,
        "file": fault.file,
        "noticed": run.returncode != 0,
        "by": None if by is None else by[1],
        "seconds": round(time.monotonic() - began, 1),
    }


def table(found: list[dict[str, Any]]) -> str:
    """How many of each room were noticed, and how long that took on average."""
    lines = [f"{'room':<22}{'planted':>8}{'noticed':>8}{'seconds':>8}"]
    for room in dict.fromkeys(each["room"] for each in found):
        of_room = [each for each in found if each["room"] == room]
        noticed = [each["seconds"] for each in of_room if each["noticed"]]
        mean = f"{sum(noticed) / len(noticed):.1f}" if noticed else "-"
        lines.append(f"{room:<22}{len(of_room):>8}{len(noticed):>8}{mean:>8}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="plants known mistakes and runs the tests that have to notice them")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all if left out")
    parser.add_argument("--room", choices=sorted({fault.room for fault in FAULTS}), action="append", help="all of a room")
    parser.add_argument("--limit", type=int, default=120, help="seconds one test may take")
    parser.add_argument("--json", action="store_true", help="a line of JSON per fault instead of text")
    options = parser.parse_args()
    if unknown := set(options.names) - {fault.name for fault in FAULTS}:
        parser.error(f"there is no {min(unknown)} among {', '.join(fault.name for fault in FAULTS)}")
    everything = not options.names and not options.room
    chosen = [fault for fault in FAULTS if everything or fault.name in options.names or fault.room in (options.room or ())]
    found = []
    with tempfile.TemporaryDirectory(prefix="kafkacore-planted-") as directory:
        copy_of_the_checkout(Path(directory))
        for fault in chosen:
            one = planted(fault, Path(directory), options.limit)
            found.append(one)
            if options.json:
                print(json.dumps(one), flush=True)
            else:
                outcome = f"noticed by {one['by']}" if one["noticed"] else f"NOT NOTICED: {fault.what} ({fault.file})"
                print(f"{fault.name}: {outcome}, {one['seconds']} s", flush=True)
    if not options.json:
        print(table(found), flush=True)
    return 0 if all(each["noticed"] for each in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
