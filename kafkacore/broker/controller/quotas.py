"""Client quotas: altering them. Brokers obey them (`broker/throttling.py`), and the controller `controller_mutation_rate` (`writer.py`).

Source: org.apache.kafka.controller.ClientQuotaControlManager, org.apache.kafka.server.config.QuotaConfig.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from kafkacore import errors
from kafkacore.broker.cluster import QuotaEntity
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.broker.quotas import CLIENT_ID, CONNECTIONS, FETCH, IP, MUTATION, PRODUCE, REQUEST, USER
from kafkacore.errors import KafkaError
from kafkacore.protocol import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredClientQuota,
    ClientQuotaAlteration,
    ClientQuotaEntityPart,
)
from kafkacore.protocol.metadata_log import ClientQuotaEntity, ClientQuotaRecord, MetadataRecord

_USER_KEYS = (PRODUCE, FETCH, REQUEST, MUTATION)
_IP_KEYS = (CONNECTIONS,)
_WHOLE = {
    PRODUCE: (2.0**63, "a LONG"),
    FETCH: (2.0**63, "a LONG"),
    CONNECTIONS: (2.0**31 - 1, "an INT"),
}
"""Quotas that are whole numbers: the largest, and Kafka's words for its type."""


def alter_client_quotas(state: ControllerState, request: AlterClientQuotasRequest, version: int, now_ms: int) -> Written:
    """AlterClientQuotas v0-1, with Kafka's ways with what is named twice: of an entity's parts of one type the last holds; the first entry
    alters an entity that several name, and the one answer is the error; a quota named twice in an entry alters nothing, with that error."""
    records: list[MetadataRecord] = []
    answers: dict[QuotaEntity, AlteredClientQuota] = {}
    for wanted in request.entries:
        names = {part.entity_type: part.entity_name for part in wanted.entity}
        entity = frozenset(names.items())
        code, message = 0, None
        try:
            if entity in answers or len({op.key for op in wanted.ops}) < len(wanted.ops):
                shown = ", ".join(f"{kind}={name}" for kind, name in names.items())
                raise errors.InvalidRequest(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")
            records += _alter(state, entity, names, wanted)
        except KafkaError as error:
            code, message = code_of(error), error.message
        parts = [ClientQuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in names.items()]
        answers[entity] = AlteredClientQuota(error_code=code, error_message=message, entity=parts)
    return Written([] if request.validate_only else records, AlterClientQuotasResponse(entries=list(answers.values())))


def _alter(
    state: ControllerState, entity: QuotaEntity, names: Mapping[str, str | None], wanted: ClientQuotaAlteration
) -> list[MetadataRecord]:
    _check_entity(names)
    current = state.image.client_quotas.get(entity, {})
    parts = [ClientQuotaEntity(entity_type=kind, entity_name=name) for kind, name in names.items()]
    records: list[MetadataRecord] = []
    for op in wanted.ops:
        if op.remove:
            if op.key in current:
                records.append(ClientQuotaRecord(entity=parts, key=op.key, remove=True))
            continue
        _check_value(op.key, op.value, _IP_KEYS if IP in names else _USER_KEYS)
        if current.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity=parts, key=op.key, value=op.value))
    return records


def _check_entity(names: Mapping[str, str | None]) -> None:
    if not names:
        raise errors.InvalidRequest("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise errors.InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise errors.InvalidRequest(f"Empty {kind} not supported")
    if IP in names:
        if len(names) > 1:
            raise errors.InvalidRequest("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
        address = names[IP]
        if address is not None and not _is_address(address):
            raise errors.InvalidRequest(f"{address} is not a valid IP or resolvable host.")


def _is_address(text: str) -> bool:
    """Whether it is an address. Kafka resolves names, too; here nothing waits for a name server, and localhost is the one name known."""
    if text == "localhost":
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(key: str, value: float, keys: tuple[str, ...]) -> None:
    if key not in keys:
        raise errors.InvalidRequest(f"Invalid configuration key {key}")
    if value <= 0:
        raise errors.InvalidRequest(f"Quota {key} must be greater than 0")
    if key in _WHOLE:
        limit, kind = _WHOLE[key]
        if value > limit:
            raise errors.InvalidRequest(f"Proposed value for {key} is too large for {kind}.")
        if value % 1.0 > 1e-6:
            raise errors.InvalidRequest(f"{key} cannot be a fractional value.")
