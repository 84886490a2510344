"""SCRAM credentials: what is kept of a password (RFC 5802), so that it can be checked and not be read.

Source: org.apache.kafka.controller.ScramControlManager.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from kafkacore import errors
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.errors import KafkaError
from kafkacore.net.sasl import scram_credential
from kafkacore.protocol import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkacore.protocol.metadata_log import MetadataRecord, RemoveUserScramCredentialRecord, UserScramCredentialRecord

MAX_ITERATIONS = 16_384


class Mechanism(NamedTuple):
    """One way to hash."""

    name: str
    min_iterations: int


MECHANISMS = {1: Mechanism("SCRAM-SHA-256", 4096), 2: Mechanism("SCRAM-SHA-512", 4096)}


def alter_user_scram_credentials(
    state: ControllerState, request: AlterUserScramCredentialsRequest, version: int, now_ms: int
) -> Written:
    """AlterUserScramCredentials v0. A user gets one result: the first error, if there is one, and then nothing of that user changes."""
    everything: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    mentions = Counter(each.name for each in everything)
    records: dict[str, list[MetadataRecord]] = {}
    failed: dict[str, KafkaError] = {}
    for wanted in everything:
        own = records.setdefault(wanted.name, [])
        try:
            _check(wanted)
            if mentions[wanted.name] > 1:
                raise errors.DuplicateResource("A user credential cannot be altered twice in the same request")
            own.append(_delete(state, wanted) if isinstance(wanted, ScramCredentialDeletion) else _upsert(wanted))
        except KafkaError as error:
            failed.setdefault(wanted.name, error)
    results = [
        AlterUserScramCredentialsResult(
            user=name,
            error_code=code_of(failed[name]) if name in failed else 0,
            error_message=failed[name].message if name in failed else None,
        )
        for name in records
    ]
    written = [record for name, each in records.items() if name not in failed for record in each]
    return Written(written, AlterUserScramCredentialsResponse(results=results))


def _check(wanted: ScramCredentialDeletion | ScramCredentialUpsertion) -> None:
    if not wanted.name:
        raise errors.UnacceptableCredential("Username must not be empty")
    mechanism = MECHANISMS.get(wanted.mechanism)
    if mechanism is None:
        raise errors.UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    if isinstance(wanted, ScramCredentialUpsertion):
        if wanted.iterations < mechanism.min_iterations:
            raise errors.UnacceptableCredential("Too few iterations")
        if wanted.iterations > MAX_ITERATIONS:
            raise errors.UnacceptableCredential("Too many iterations")


def _delete(state: ControllerState, wanted: ScramCredentialDeletion) -> MetadataRecord:
    if (wanted.name, wanted.mechanism) not in state.image.scram_credentials:
        raise errors.ResourceNotFound("Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=wanted.name, mechanism=wanted.mechanism)


def _upsert(wanted: ScramCredentialUpsertion) -> MetadataRecord:
    kept = scram_credential(MECHANISMS[wanted.mechanism].name, bytes(wanted.salted_password), bytes(wanted.salt), wanted.iterations)
    return UserScramCredentialRecord(name=wanted.name, mechanism=wanted.mechanism, **kept._asdict())
