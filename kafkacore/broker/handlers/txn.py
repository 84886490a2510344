"""InitProducerId.

Source: KIP-98, KIP-360; kafka.server.KafkaApis.handleInitProducerIdRequest.
"""

from __future__ import annotations

from kafkacore.broker.state import BrokerState, Call
from kafkacore.errors import Code
from kafkacore.protocol import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(state: BrokerState, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """InitProducerId v0-5 for idempotent producers: every call gives a fresh id with epoch 0, as Kafka does without a transactional id.
    A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED until transactions exist: of all codes it is the one that
    Java, librdkafka, kafka-python and aiokafka alike take as final; the coordinator errors would have them ask for ever."""
    if request.transactional_id is not None:
        code = Code.INVALID_REQUEST if request.transactional_id == "" else Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=Code.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(error_code=Code.NONE, producer_id=state.cluster.next_producer_id(), producer_epoch=0)
