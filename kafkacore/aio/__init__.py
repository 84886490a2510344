"""asyncio faces: the same clients, settings, errors and semantics for programs that live in an event loop.

KafkaProducer, KafkaConsumer, KafkaAdminClient   the clients; what can wait is a coroutine, what cannot is a plain call
RebalanceListener                                its methods may be coroutines
WheelTimer                                       any number of timers on one timer of the loop
"""

from __future__ import annotations

from kafkacore.aio.admin import KafkaAdminClient
from kafkacore.aio.consumer import KafkaConsumer, RebalanceListener
from kafkacore.aio.producer import KafkaProducer
from kafkacore.aio.timers import WheelHandle, WheelTimer

__all__ = ["KafkaAdminClient", "KafkaConsumer", "KafkaProducer", "RebalanceListener", "WheelHandle", "WheelTimer"]
