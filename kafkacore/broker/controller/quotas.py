"""Client quotas: stored for whoever asks; the embedded broker throttles nobody.

Source: org.apache.kafka.controller.ClientQuotaControlManager, org.apache.kafka.server.config.QuotaConfig.
"""

from __future__ import annotations

import ipaddress
import math

from kafkacore import errors
from kafkacore.broker.cluster import QuotaEntity
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.errors import KafkaError
from kafkacore.protocol import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredClientQuota,
    ClientQuotaAlteration,
    ClientQuotaEntityPart,
)
from kafkacore.protocol.metadata_log import ClientQuotaEntity, ClientQuotaRecord, MetadataRecord

INT64_LIMIT = 2.0**63
USER, CLIENT_ID, IP = "user", "client-id", "ip"
_WHOLE = ("producer_byte_rate", "consumer_byte_rate")
_USER_KEYS = (*_WHOLE, "request_percentage", "controller_mutation_rate")
_IP_KEYS = ("connection_creation_rate",)


def alter_client_quotas(state: ControllerState, request: AlterClientQuotasRequest, version: int, now_ms: int) -> Written:
    """AlterClientQuotas v0-1. An entity named twice is answered once, with the error."""
    records: list[MetadataRecord] = []
    answers: dict[QuotaEntity, AlteredClientQuota] = {}
    written: dict[QuotaEntity, list[MetadataRecord]] = {}
    for wanted in request.entries:
        entity = frozenset((part.entity_type, part.entity_name) for part in wanted.entity)
        code, message = 0, None
        try:
            if entity in answers:
                written.pop(entity, None)
                shown = ", ".join(f"{part.entity_type}={part.entity_name}" for part in wanted.entity)
                raise errors.InvalidRequest(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")
            written[entity] = _alter(state, entity, wanted)
        except KafkaError as error:
            code, message = code_of(error), error.message
        answers[entity] = AlteredClientQuota(error_code=code, error_message=message, entity=list(wanted.entity))
    for each in written.values():
        records += each
    return Written([] if request.validate_only else records, AlterClientQuotasResponse(entries=list(answers.values())))


def _alter(state: ControllerState, entity: QuotaEntity, wanted: ClientQuotaAlteration) -> list[MetadataRecord]:
    names = _check_entity(wanted.entity)
    current = state.image.client_quotas.get(entity, {})
    parts = [ClientQuotaEntity(entity_type=part.entity_type, entity_name=part.entity_name) for part in wanted.entity]
    records: list[MetadataRecord] = []
    for op in wanted.ops:
        if op.remove:
            if op.key in current:
                records.append(ClientQuotaRecord(entity=parts, key=op.key, value=0.0, remove=True))
            continue
        _check_value(op.key, op.value, _IP_KEYS if IP in names else _USER_KEYS)
        if current.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity=parts, key=op.key, value=op.value, remove=False))
    return records


def _check_entity(parts: list[ClientQuotaEntityPart]) -> dict[str, str | None]:
    if not parts:
        raise errors.InvalidRequest("Invalid empty client quota entity")
    names: dict[str, str | None] = {}
    for part in parts:
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise errors.InvalidRequest(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_type in names:
            raise errors.InvalidRequest(f"Client quota entity type {part.entity_type} cannot be repeated")
        if part.entity_name == "":
            raise errors.InvalidRequest(f"Empty {part.entity_type} not supported")
        names[part.entity_type] = part.entity_name
    if IP in names:
        if len(names) > 1:
            raise errors.InvalidRequest("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
        address = names[IP]
        if address is not None and not _is_address(address):
            raise errors.InvalidRequest(f"{address} is not a valid IP or resolvable host.")
    return names


def _is_address(text: str) -> bool:
    """Whether it is an address. Kafka resolves names, too; here nothing waits for a name server."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(key: str, value: float, keys: tuple[str, ...]) -> None:
    if key not in keys:
        raise errors.InvalidRequest(f"Invalid configuration key {key}")
    if math.isnan(value) or value <= 0:
        raise errors.InvalidRequest(f"Quota {key} must be greater than 0")
    if key in _WHOLE:
        if value >= INT64_LIMIT:
            raise errors.InvalidRequest(f"Proposed value for {key} is too large for a LONG.")
        if value != math.floor(value):
            raise errors.InvalidRequest(f"{key} cannot be a fractional value.")
