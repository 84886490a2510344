"""Quotas: how long a client that takes more than its share has to wait. Pure arithmetic: the time is handed in, nothing waits here.

    user, client id --`Limits.find`--> the quota that holds, and whose use counts against it
    use --`Windows`--> samples of window_ms --> rate over all of them --> throttle time
    permits --`Bucket`--> tokens, refilled at the quota's rate --> throttle time

Rules:

1. The most specific quota holds: that of a user and client id, of a user and any client id, of a user; the same for users that have none of
   their own; then of a client id, and of any client id. All clients that share the quota's names share one use of it.
   [test_the_most_specific_quota_holds_of_every_set_of_them, test_who_shares_a_quota_shares_its_use]
2. A rate counts over `samples` windows; where fewer are there, the missing ones count as empty ones. Throttle time is what brings the rate
   back to the quota: (rate - quota) / quota * time counted over. [test_the_first_use_counts_over_the_windows_that_are_missing,
   test_after_the_throttle_time_the_rate_is_at_the_quota]
3. A bucket holds as many tokens as accrue in all windows together, and is in debt after a request that takes more.
   [test_a_bucket_is_what_accrued_less_what_was_taken, test_strict_lets_all_of_a_request_through_and_then_nothing_until_the_debt_is_paid]
4. Uses that rested for an hour are forgotten, and the oldest ones beyond `MAX_USES`: who invents client ids fills no memory.
   [test_uses_that_rest_for_an_hour_are_forgotten, test_invented_client_ids_fill_no_memory]
5. A clock that goes back begins the samples again; one that jumps ahead leaves old ones behind.
   [test_a_clock_that_goes_back_throttles_nobody_for_ever, test_a_clock_that_jumps_ahead_forgets]

Source: org.apache.kafka.server.quota.{ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager},
kafka.network.ConnectionQuotas, org.apache.kafka.common.metrics.stats.{Rate, SampledStat, TokenBucket}, KIP-13, KIP-55, KIP-124, KIP-219,
KIP-599, KIP-612.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from kafkacore.broker.cluster import QuotaEntity
from kafkacore.config_listeners import LOOPBACK

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCE, FETCH, REQUEST, MUTATION, CONNECTIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
USE_EXPIRES_MS = 3_600_000
MAX_USES = 50_000
LONGEST_NAME: Final = 256
"""Longer names count under their hash: client ids may have 32 KiB."""
_SECOND_MS = 1_000
_INT32_MAX = 2**31 - 1
_ROUNDING = 1e-6
"""What sums of fractions of tokens may be wrong by."""

Name = str | None
"""A name, or None for clients without a quota of their own."""


class _Absent:
    """Marks a part that an entity does not have."""


ABSENT: Final = _Absent()
Key = tuple[Hashable, Hashable]
"""User and client id, each a name, None for the default, or `ABSENT`."""


class Windows:
    """What was used in the last windows.

    Source: org.apache.kafka.common.metrics.stats.Rate over a WindowedSum.
    """

    __slots__ = ("_samples", "last_ms")

    def __init__(self) -> None:
        self._samples: list[list[float]] = []  # start, last use, sum; the oldest first
        self.last_ms = 0

    def record(self, value: float, now_ms: int, window_ms: int) -> None:
        """Adds to the current sample; a new one begins when it is `window_ms` old."""
        self._look_at_clock(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= window_ms:
            samples.append([now_ms, now_ms, value])
            return
        current = samples[-1]
        current[1] = now_ms
        current[2] += value

    def rate(self, now_ms: int, samples: int, window_ms: int) -> tuple[float, int]:
        """Per second, and over how many milliseconds it is counted."""
        self._look_at_clock(now_ms)
        kept, oldest_ms = self._samples, now_ms - samples * window_ms
        while kept and kept[0][1] <= oldest_ms:               # last uses, which only come later
            del kept[0]
        elapsed_ms = now_ms - int(kept[0][0]) if kept else 0
        elapsed_ms += max(samples - 1 - elapsed_ms // window_ms, 0) * window_ms
        total = 0.0
        for each in kept:
            total += each[2]
        if not elapsed_ms:  # one window alone, that has just started
            return (math.inf if total > 0 else 0.0), 0
        return total * _SECOND_MS / elapsed_ms, elapsed_ms

    def _look_at_clock(self, now_ms: int) -> None:
        if now_ms < self.last_ms:
            self._samples = []
        self.last_ms = now_ms


class Bucket:
    """What may still be used.

    Source: org.apache.kafka.common.metrics.stats.TokenBucket.
    """

    __slots__ = ("last_ms", "tokens")

    def __init__(self) -> None:
        self.tokens = math.inf  # a full one, whatever the limit is
        self.last_ms = 0

    def refill(self, rate: float, burst: float, now_ms: int) -> float:
        """What there is now; negative while it is in debt."""
        elapsed_ms = max(now_ms - self.last_ms, 0)
        self.tokens = min(burst, self.tokens + rate * elapsed_ms / _SECOND_MS)
        self.last_ms = now_ms
        return self.tokens


class Limits:
    """The quotas of one kind."""

    def __init__(self) -> None:
        self._values: dict[Key, float] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], kind: str) -> None:
        """Takes over what the cluster says.

        Args:
            quotas: values by name, by entity.
            kind: the name of the value that counts.
        """
        self._values = {
            (names.get(USER, ABSENT), names.get(CLIENT_ID, ABSENT)): values[kind]
            for entity, values in quotas.items()
            if kind in values and (names := dict(entity)) and IP not in names
        }

    def find(self, user: str, client_id: str) -> tuple[Key, float] | None:
        """The quota that holds for a client, and whose use counts against it; None without one."""
        values = self._values
        for key, use in (
            ((user, client_id), (user, client_id)),
            ((user, None), (user, client_id)),
            ((user, ABSENT), (user, ABSENT)),
            ((None, client_id), (user, client_id)),
            ((None, None), (user, client_id)),
            ((None, ABSENT), (user, ABSENT)),
            ((ABSENT, client_id), (ABSENT, client_id)),
            ((ABSENT, None), (ABSENT, client_id)),
        ):
            limit = values.get(key)
            if limit is not None:
                return use, limit
        return None


def _short(name: Hashable) -> Hashable:
    if isinstance(name, str) and len(name) > LONGEST_NAME:
        return hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return name


U = TypeVar("U", Windows, Bucket)


class Uses(Generic[U]):
    """The uses of one kind, the longest unused first."""

    def __init__(self, new: type[U]) -> None:
        self._new: type[U] = new
        self._kept: dict[Hashable, U] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, key: Iterable[Hashable], now_ms: int) -> U:
        """The use under a key; a new one if it rested too long."""
        short = tuple(_short(each) for each in key)
        kept = self._kept
        use = kept.pop(short, None)
        for _ in range(2):  # more than come in
            oldest = next(iter(kept), None)
            if oldest is None or (0 <= now_ms - kept[oldest].last_ms <= USE_EXPIRES_MS and len(kept) < MAX_USES):
                break
            del kept[oldest]
        if use is None or now_ms - use.last_ms > USE_EXPIRES_MS:
            use = self._new()
        kept[short] = use
        return use

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()


class RateQuota:
    """Quotas of one kind over a rate, and who used how much."""

    def __init__(self, kind: str, samples: int, window_s: int, max_throttle_ms: int = _INT32_MAX) -> None:
        """No quota yet.

        Args:
            kind: the quota's name.
            samples: how many windows count.
            window_s: seconds of each.
            max_throttle_ms: no client waits longer at once.
        """
        self.kind = kind
        self.limits = Limits()
        self.samples = samples
        self.window_ms = window_s * _SECOND_MS
        self._max_throttle_ms = max_throttle_ms
        self.uses: Uses[Windows] = Uses(Windows)

    def __bool__(self) -> bool:
        """Whether anybody has such a quota."""
        return bool(self.limits)

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Counts a use.

        Args:
            user, client_id: who.
            value: how much, in the quota's unit times a second.
            now_ms: monotonic time.

        Returns:
            How long the client has to wait for it.
        """
        found = self.limits.find(user, client_id)
        if found is None:
            return 0
        key, limit = found
        use = self.uses.of(key, now_ms)
        use.record(value, now_ms, self.window_ms)
        return throttle_ms(use, limit, now_ms, self.samples, self.window_ms, self._max_throttle_ms)

    def count(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Counts a use, or takes one back (a negative value), for which no client waits now."""
        found = self.limits.find(user, client_id)
        if found is not None:
            self.uses.of(found[0], now_ms).record(value, now_ms, self.window_ms)

    def most_at_once(self, user: str, client_id: str) -> float:
        """More than this is throttled even after a long rest."""
        found = self.limits.find(user, client_id)
        return math.inf if found is None else found[1] * (self.samples - 1) * self.window_ms / _SECOND_MS


def throttle_ms(use: Windows, limit: float, now_ms: int, samples: int, window_ms: int, at_most_ms: int = _INT32_MAX) -> int:
    """How long it takes until a rate is back at its limit, if nothing more is used."""
    rate, over_ms = use.rate(now_ms, samples, window_ms)
    if rate <= limit:
        return 0
    return min(_rounded(math.inf if math.isinf(rate) else (rate - limit) / limit * over_ms), at_most_ms)


def _rounded(wait_ms: float) -> int:
    """A throttle time as answers have it: 32 bits. A limit may be so small that the time is infinite; one that is NaN delays no client."""
    return 0 if math.isnan(wait_ms) else math.floor(min(wait_ms + 0.5, _INT32_MAX))


class MutationQuota:
    """Quotas over what the controller is asked to create and delete: partitions.

    Strict: who is in debt gets nothing, and who is not gets all of one request. Permissive, for versions of requests that know no
    THROTTLING_QUOTA_EXCEEDED: everybody gets everything, and waits for it afterwards.
    """

    def __init__(self, samples: int, window_s: int) -> None:
        """No quota yet.

        Args:
            samples: how many windows count.
            window_s: seconds of each.
        """
        self.limits = Limits()
        self._burst_s = samples * window_s
        self.uses: Uses[Bucket] = Uses(Bucket)

    def __bool__(self) -> bool:
        """Whether anybody has such a quota."""
        return bool(self.limits)

    def take(self, user: str, client_id: str, permits: int, now_ms: int, strict: bool) -> tuple[bool, int]:
        """Counts partitions.

        Returns:
            Whether they may be created or deleted, and how long the client has to wait.
        """
        found = self.limits.find(user, client_id)
        if found is None:
            return True, 0
        key, limit = found
        use = self.uses.of(key, now_ms)
        tokens = use.refill(limit, self._burst_s * limit, now_ms)
        if strict and tokens < -_ROUNDING:
            return False, _rounded(-tokens / limit * _SECOND_MS)
        use.tokens = tokens - permits
        return True, 0 if strict or use.tokens >= 0 else _rounded(-use.tokens / limit * _SECOND_MS)


class ConnectionRateQuota:
    """Quotas over how fast an address opens connections."""

    def __init__(self, samples: int, window_s: int) -> None:
        """No quota yet.

        Args:
            samples: how many windows count.
            window_s: seconds of each.
        """
        self._limits: dict[Name, float] = {}
        self._samples = samples
        self._window_ms = window_s * _SECOND_MS
        self.uses: Uses[Windows] = Uses(Windows)

    def __bool__(self) -> bool:
        """Whether any address has such a quota."""
        return bool(self._limits)

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Takes over what the cluster says."""
        self._limits = {
            _address(names[IP]): values[CONNECTIONS]
            for entity, values in quotas.items()
            if CONNECTIONS in values and IP in (names := dict(entity))
        }

    def opened(self, host: str, now_ms: int) -> int:
        """Counts a connection.

        Returns:
            0, or how long it is kept waiting before it is closed; it does not count then.
        """
        limit = self._limits.get(host, self._limits.get(None))
        if limit is None:
            return 0
        use = self.uses.of((host,), now_ms)
        use.record(1, now_ms, self._window_ms)
        wait_ms = throttle_ms(use, limit, now_ms, self._samples, self._window_ms, self._window_ms)
        if wait_ms:
            use.record(-1, now_ms, self._window_ms)
        return wait_ms


def _address(name: Name) -> Name:
    if name is None or name == "localhost":
        return name and LOOPBACK
    return ipaddress.ip_address(name).compressed
