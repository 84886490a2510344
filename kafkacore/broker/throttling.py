"""Throttling: a broker's requests are measured, answered, and their connections muted for as long as the quotas say (KIP-219).

    request --> `Metered` --handler--> response --`Throttling.charge`--> response with throttle_time_ms
                                                                         and its connection is not read for so long

Rules:

1. A Produce request counts with its size, when it is answered; what it brought is written all the same. A consumer's Fetch counts with the
   size of its answer; if that is too much, the answer is empty and does not count, and the client asks for the same later.
   [test_the_size_of_the_request_counts, test_who_writes_too_much_is_told_and_not_read_for_so_long,
   test_who_reads_too_much_gets_nothing_and_the_same_later]
2. Every request counts with the time that the broker's thread spends on it, but for the copying of brokers, the SASL dialogue and what
   comes before it: a stranger would use what a client id has. [test_the_unit_is_percent_of_the_thread, test_followers_are_not_throttled,
   test_strangers_use_nobodys_quota]
3. The longest of several throttle times is what the client is given and waits. What the controller says (controller_mutation_rate) is one.
   [test_requests_count_with_the_time_they_take_and_wait_a_window_at_most, test_partitions_beyond_the_rate_are_refused]
4. While no client has a quota none of this is there: `Throttling.on_change` says when it has to be.
   [test_a_quota_is_obeyed_at_once_and_its_end_too]

Source: kafka.server.{KafkaApis, RequestHandlerHelper}, org.apache.kafka.server.quota.ThrottledChannel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacore.broker.cluster import ImageDelta, ImageListener
from kafkacore.broker.quotas import FETCH, MUTATION, PRODUCE, REQUEST, ConnectionRateQuota, Limits, RateQuota
from kafkacore.broker.sessions import FetchSessionCache
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.protocol import (
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    WriteTxnMarkersRequest,
    encode_response,
)
from kafkacore.protocol.schema import Request, Response

EXEMPT = (WriteTxnMarkersRequest.API_KEY, SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY)
"""What is not measured: the requests of brokers, and of those who are no client yet."""
FIRST_FETCH_WITH_REPLICA_STATE = 15
FIRST_FLEXIBLE_FETCH = 12
_NS_PER_PERCENT = 10_000_000  # of a second
_USER = "User:"


def name_of(principal: str) -> str:
    """Of a user, as quotas name it."""
    return principal.removeprefix(_USER)


class Throttling(ImageListener):
    """A broker's quotas.

    Attributes:
        produce, fetch, request: the quotas over rates.
        mutation: whose requests the controller may throttle.
        connections: how fast addresses may open connections.
        on_change: called with whether any client has a quota, when that changes.
        throttled: how many requests were, and for how many milliseconds together, by the name of the quota.
    """

    def __init__(self, config: BrokerConfig, sessions: FetchSessionCache) -> None:
        """No quota yet.

        Args:
            config: the windows.
            sessions: of consumers whose answers may be taken back.
        """
        samples, window_s = config.quota_window_num, config.quota_window_size_seconds
        self.produce = RateQuota(PRODUCE, samples, window_s)
        self.fetch = RateQuota(FETCH, samples, window_s)
        self.request = RateQuota(REQUEST, samples, window_s, max_throttle_ms=window_s * 1_000)
        self.mutation = Limits()
        self.connections = ConnectionRateQuota(samples, window_s)
        self.on_change: Callable[[bool], None] = lambda active: None
        self.throttled: dict[str, tuple[int, int]] = {}
        self._sessions = sessions

    def image_changed(self, delta: ImageDelta) -> None:
        if not delta.quotas:
            return
        quotas = delta.image.client_quotas
        for each in (self.produce, self.fetch, self.request):
            each.limits.update(quotas, each.kind)
        self.mutation.update(quotas, MUTATION)
        self.connections.update(quotas)
        self.on_change(self.is_active)

    @property
    def is_active(self) -> bool:
        """Whether any client has a quota."""
        return bool(self.produce or self.fetch or self.request or self.mutation)

    def charge(self, metered: Metered, response: Response | None, now_ms: int) -> tuple[Response | None, int]:
        """Counts a request that is about to be answered.

        Returns:
            The response to send, and how long the client has to wait.
        """
        request, user, client_id = metered.request, metered.user, metered.client_id
        if isinstance(request, ProduceRequest):
            waits = {PRODUCE: self.produce.record(user, client_id, metered.nbytes, now_ms)}
            if request.acks != 0:
                waits[REQUEST] = self.request.record(user, client_id, metered.percent, now_ms)
        elif isinstance(response, FetchResponse):
            return self._charge_fetch(metered, response, now_ms)
        else:
            waits = {REQUEST: self.request.record(user, client_id, metered.percent, now_ms)}
            waits[MUTATION] = getattr(response, "throttle_time_ms", 0)
        wait_ms = self._longest(waits)
        if wait_ms and hasattr(response, "throttle_time_ms"):
            assert response is not None
            response = response._replace(throttle_time_ms=wait_ms)
        return response, wait_ms

    def _charge_fetch(self, metered: Metered, response: FetchResponse, now_ms: int) -> tuple[FetchResponse, int]:
        user, client_id = metered.user, metered.client_id
        nbytes = _size(response, metered.version) if self.fetch else 0
        wait_ms = self._longest(
            {
                REQUEST: self.request.record(user, client_id, metered.percent, now_ms),
                FETCH: self.fetch.record(user, client_id, nbytes, now_ms),
            }
        )
        if not wait_ms:
            return response, 0
        self.fetch.count(user, client_id, -nbytes, now_ms)
        assert isinstance(metered.request, FetchRequest)
        session_id = self._sessions.take_back(metered.request, response, metered.version)
        return FetchResponse(throttle_time_ms=wait_ms, error_code=response.error_code, session_id=session_id), wait_ms

    def _longest(self, waits: dict[str, int]) -> int:
        kind = max(waits, key=lambda each: waits[each])
        wait_ms = waits[kind]
        if wait_ms:
            requests, total_ms = self.throttled.get(kind, (0, 0))
            self.throttled[kind] = requests + 1, total_ms + wait_ms
        return wait_ms

    def spent(self, metered: Metered, percent: float, now_ms: int) -> None:
        """Counts time of the broker's thread that came after the answer; the next request pays for it. A write without an answer is no
        request of this quota, as in Kafka."""
        unanswered = isinstance(metered.request, ProduceRequest) and metered.request.acks == 0
        if self.request and not unanswered:
            self.request.count(metered.user, metered.client_id, percent, now_ms)


class Metered:
    """One request under quotas, between the server and the handler.

    Attributes:
        request, version: of the client.
        user, client_id: who it is.
        nbytes: the request's size.
        percent: of a second of the broker's thread that it took so far.
    """

    __slots__ = (
        "_answered",
        "_clock",
        "_mute",
        "_respond",
        "_started_ns",
        "_throttling",
        "client_id",
        "nbytes",
        "percent",
        "request",
        "user",
        "version",
    )

    def __init__(
        self,
        throttling: Throttling,
        request: Request,
        version: int,
        user: str,
        client_id: str,
        nbytes: int,
        clock: Clock,
        respond: Callable[[Response | None], None],
        mute: Callable[[int], None],
    ) -> None:
        """Begins to measure.

        Args:
            throttling: counts it.
            request, version, user, client_id, nbytes: see the attributes.
            clock: the time.
            respond: sends the response.
            mute: has the connection not be read for so many milliseconds.
        """
        self._throttling = throttling
        self.request = request
        self.version = version
        self.user = user
        self.client_id = client_id
        self.nbytes = nbytes
        self._clock = clock
        self._respond = respond
        self._mute = mute
        self.percent = 0.0
        self._answered = False
        self._started_ns: int | None = clock.now_ns()

    def respond(self, response: Response | None) -> None:
        """Takes the place of the call's `respond`."""
        self._measure()
        response, wait_ms = self._throttling.charge(self, response, self._clock.now_ms())
        self.percent = 0.0
        self._answered = True
        self._respond(response)
        if wait_ms:
            self._mute(wait_ms)

    def _measure(self) -> None:
        if self._started_ns is not None:
            now_ns = self._clock.now_ns()
            self.percent += (now_ns - self._started_ns) / _NS_PER_PERCENT
            self._started_ns = now_ns

    def resume(self) -> None:
        """The broker's thread turns to the request again."""
        self._started_ns = self._clock.now_ns()

    def pause(self) -> None:
        """The broker's thread turns to others. If the request is answered, what came after counts too."""
        self._measure()
        self._started_ns = None
        if self._answered and self.percent:
            self._throttling.spent(self, self.percent, self._clock.now_ms())


def is_measured(request: Request, version: int) -> bool:
    """Whether a request counts: not if brokers ask each other."""
    if isinstance(request, FetchRequest):
        return (request.replica_state.replica_id if version >= FIRST_FETCH_WITH_REPLICA_STATE else request.replica_id) < 0
    if isinstance(request, OffsetForLeaderEpochRequest):
        return request.replica_id < 0
    return request.API_KEY not in EXEMPT


def _size(response: FetchResponse, version: int) -> int:
    """Of the answer as it goes over the network, without what stands before its body but for the size."""
    parts: list[Any] = encode_response(response, version, 0)
    whole = sum(len(part) if isinstance(part, bytes | bytearray) else part.nbytes for part in parts)
    return whole - (5 if version >= FIRST_FLEXIBLE_FETCH else 4)
