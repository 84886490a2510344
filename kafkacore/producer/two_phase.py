"""Two-phase commit: transactions that one process prepares and another one ends.

Layout
  PreparedTransaction   what the one hands to the other: plain data
  PreparedState         how a prepared transaction stands
  state_of              what the answer to DescribeTransactions says about one: the table
  Ending                one prepared transaction on its way to its end, without I/O
  TwoPhaseClient        looks at prepared transactions, commits and aborts them, many at a time

Rules
1. The coordinator takes EndTxn from anyone who names the transactional id, the producer id and its epoch. What must not happen is that it
   ends another transaction. With transaction.version 2 each transaction has an epoch of its own. Before that several share one, so the
   coordinator is asked first: the time at which a transaction began tells it from the others of its producer. [test_the_states,
   test_the_producer_goes_on_after_an_end_by_another_client, test_many_at_once_and_one_that_fails]
2. The first question also says what came before: it was ended already, by this process or another one, or its time was over.
   [test_what_waits_is_ended, test_it_says_whose_abort_it_was]
3. After an answer to EndTxn that is lost, or says that the transaction does not stand as expected, the first question is asked again. So a
   commit may be asked for any number of times, by any number of processes. [test_an_end_that_is_refused_is_looked_at_again_once,
   test_after_a_transient_error_it_is_looked_at_again]

Source: KIP-98, KIP-664, KIP-890, KIP-939; kafka.coordinator.transaction.TransactionCoordinator.
"""

from __future__ import annotations

import enum
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

from kafkacore import errors
from kafkacore.config import AdminConfig
from kafkacore.config_keywords import AdminKeywords
from kafkacore.errors import Code, KafkaError
from kafkacore.net.coordinator import TRANSACTION, CoordinatorLink
from kafkacore.net.driver import CallerDriver
from kafkacore.producer.transactions import Standing
from kafkacore.producer.txn_requests import FIRST_END_WITH_EPOCH
from kafkacore.protocol import DescribeTransactionsRequest, EndTxnRequest
from kafkacore.types import TopicPartition

if TYPE_CHECKING:
    from kafkacore.clock import Clock
    from kafkacore.net.client import ClientResponse, NetworkClient

log = logging.getLogger(__name__)

LAST_EPOCH = 2**15 - 2
"""With it a producer id is used up: the next transaction has another id, and epoch 0."""
NOTHING_BEGAN = -1


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction that has all its records and waits for its end: from `KafkaProducer.prepare_transaction`. It can be pickled, and
    `to_json` and `from_json` make it text.

    Attributes:
        transactional_id, producer_id, producer_epoch: whose transaction it is.
        started_at_ms: when it began, in ms since 1970 by the clock of its coordinator; -1 if nothing was written, so that nothing began.
        timeout_ms: the coordinator aborts it when it has been open for so long.
        transaction_version: 2 where each transaction has an epoch of its own (KIP-890), else 1.
        partitions: those it has written to, and those of `__consumer_offsets` with offsets of groups.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    started_at_ms: int = NOTHING_BEGAN
    timeout_ms: int = -1
    transaction_version: int = 2
    partitions: tuple[TopicPartition, ...] = ()

    @classmethod
    def of(cls, transactional_id: str, at: Standing) -> PreparedTransaction:
        """The transaction that a producer has prepared.

        Args:
            transactional_id: of the producer.
            at: how its transaction stands.

        Raises:
            IllegalStateError: another thread has ended it.
        """
        if at.prepared is None:
            raise errors.IllegalStateError("the prepared transaction was ended by another thread")
        _, started_at_ms, timeout_ms, partitions = at.prepared
        return cls(transactional_id, at.producer_id, at.epoch, started_at_ms, timeout_ms, 2 if at.adds_by_writing else 1, partitions)

    @property
    def expires_at_ms(self) -> int | None:
        """When the coordinator aborts it, in ms since 1970 by its clock; None if nothing was written."""
        return None if self.started_at_ms == NOTHING_BEGAN else self.started_at_ms + self.timeout_ms

    def to_json(self) -> str:
        """All fields as a JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> PreparedTransaction:
        """What `to_json` wrote.

        Raises:
            UsageError: it is something else.
        """
        try:
            found = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise errors.UsageError(f"this is no prepared transaction: it is not JSON text: {text!r:.100}") from error
        return checked(cls(**_fields_of(found)))

    def __str__(self) -> str:
        return f"transactional id {self.transactional_id}, producer {self.producer_id}, epoch {self.producer_epoch}"


def _fields_of(found: Any) -> dict[str, Any]:
    """What `from_json` has read, once it is a prepared transaction's."""
    if not isinstance(found, dict):
        raise errors.UsageError(f"this is no prepared transaction: it is not a JSON object: {found!r:.100}")
    known = {field.name: field for field in fields(PreparedTransaction)}
    if wrong := sorted(found.keys() - known.keys()):
        raise errors.UsageError(f"this is no prepared transaction: it has no field {', '.join(wrong):.100}")
    if missing := [name for name, field in known.items() if field.default is MISSING and name not in found]:
        raise errors.UsageError(f"this is no prepared transaction: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    try:
        partitions = tuple(TopicPartition(topic, index) for topic, index in found.get("partitions", ()))
    except (TypeError, ValueError) as error:
        raise _wrong_partitions(found["partitions"]) from error
    return found | {"partitions": partitions}


def _wrong_partitions(found: Any) -> errors.UsageError:
    return errors.UsageError(f"partitions of a prepared transaction are pairs of a topic and a number, not {found!r:.100}")


def checked(prepared: PreparedTransaction) -> PreparedTransaction:
    """The same, once its fields are what requests can carry.

    Raises:
        UsageError: they are not.
    """
    if not isinstance(prepared, PreparedTransaction):
        raise TypeError(f"a PreparedTransaction is needed, not {type(prepared).__name__}")
    if not isinstance(prepared.transactional_id, str) or not prepared.transactional_id:
        raise errors.UsageError("a prepared transaction has a transactional id")
    limits = {
        "producer_id": 2**63,
        "producer_epoch": 2**15,
        "started_at_ms": 2**63,
        "timeout_ms": 2**31,
        "transaction_version": 2**15,
    }
    for name, limit in limits.items():
        value = getattr(prepared, name)
        if type(value) is not int or not -1 <= value < limit:
            raise errors.UsageError(f"{name} of a prepared transaction cannot be {value!r:.100}")
    for topic, index in prepared.partitions:
        if not isinstance(topic, str) or type(index) is not int or not 0 <= index < 2**31:
            raise _wrong_partitions(prepared.partitions)
    return prepared


class PreparedState(enum.Enum):
    """How a prepared transaction stands."""

    OPEN = "it waits for its end"
    COMMITTED = "it was committed"
    ABORTED = "it was aborted"
    NOTHING = "nothing was written, so there is nothing to end"
    UNKNOWN = "its transactional id has been used again since, or is forgotten: how it ended cannot be found out"


class Seen(NamedTuple):
    """What DescribeTransactions says of a transactional id."""

    state: str
    producer_id: int
    epoch: int
    started_at_ms: int


STATES: dict[str, PreparedState] = {
    "Ongoing": PreparedState.OPEN,
    "PrepareCommit": PreparedState.COMMITTED,
    "CompleteCommit": PreparedState.COMMITTED,
    "PrepareAbort": PreparedState.ABORTED,
    "CompleteAbort": PreparedState.ABORTED,
    "PrepareEpochFence": PreparedState.ABORTED,
}
"""By Kafka's names. What is prepared there is decided: only the markers are missing."""


def state_of(prepared: PreparedTransaction, seen: Seen) -> PreparedState:
    """How a prepared transaction stands, by what its coordinator says of the transactional id."""
    used_up = prepared.producer_epoch >= LAST_EPOCH and seen.epoch == 0 and seen.state.startswith("Complete")
    is_its_producer = seen.producer_id == prepared.producer_id or used_up
    if not is_its_producer or seen.started_at_ms != prepared.started_at_ms:
        return PreparedState.UNKNOWN
    return STATES.get(seen.state, PreparedState.UNKNOWN)


class Ended(NamedTuple):
    """What became of one of several prepared transactions.

    Attributes:
        prepared: which.
        already: it had ended so before this call, or there was nothing to end.
        error: why it did not end as it was to, or None.
    """

    prepared: PreparedTransaction
    already: bool
    error: KafkaError | None


class Ending:
    """One prepared transaction in a call; see the top of the file.

    Attributes:
        state: how it stands, once that is known.
        error: why the call fails for it.
        asks_end: EndTxn is to be sent next, else DescribeTransactions.
        sent_end: EndTxn was sent at least once.
        attempts: why it is not done yet.
    """

    def __init__(self, prepared: PreparedTransaction, commit: bool | None, wall_ms: int) -> None:
        """Asks nothing yet.

        Args:
            prepared: which.
            commit: or abort; None only looks.
            wall_ms: the time now, for the words about a timeout.
        """
        self.prepared = checked(prepared)
        self.commit = commit
        self.state: PreparedState | None = PreparedState.NOTHING if prepared.started_at_ms == NOTHING_BEGAN else None
        self.error: KafkaError | None = None
        self.asks_end = False
        self.sent_end = False
        self.attempts: list[KafkaError] = []
        self._refusal: KafkaError | None = None
        self._wall_ms = wall_ms

    @property
    def done(self) -> bool:
        """Whether its end, or its state, is known."""
        return self.state is not None or self.error is not None

    def seen(self, seen: Seen) -> None:
        """Takes in what the coordinator says of the transactional id."""
        state = state_of(self.prepared, seen)
        if state is PreparedState.OPEN and self.commit is not None:
            if self._refusal is not None:                         # EndTxn was refused, and this answer does not say why
                self.error = self._refusal
            else:
                self.asks_end = True
            return
        self._settle(state, seen)

    def forgotten(self) -> None:
        """The coordinator does not know the transactional id any more."""
        self._settle(PreparedState.UNKNOWN, None)

    def ended(self) -> None:
        """EndTxn was carried out."""
        self._settle(PreparedState.COMMITTED if self.commit else PreparedState.ABORTED, None)

    def refused(self, error: KafkaError) -> bool:
        """Takes in an error of either request.

        Returns:
            Whether to ask again.
        """
        asked_end, self.asks_end = self.asks_end, False
        if error.retriable or error.code == Code.CONCURRENT_TRANSACTIONS:
            self.attempts = [*self.attempts[-9:], error]
            return True
        if asked_end and error.code in _STANDS_OTHERWISE and self._refusal is None:
            self._refusal = error
            return True
        self.error = error
        return False

    def _settle(self, state: PreparedState, seen: Seen | None) -> None:
        self.state = state
        if self.commit is None or state is PreparedState.NOTHING:
            return
        if state is (PreparedState.COMMITTED if self.commit else PreparedState.ABORTED):
            return
        if state is PreparedState.UNKNOWN:
            now = "the coordinator has forgotten it" if seen is None else f"it is {seen.state} with epoch {seen.epoch} now"
            self.error = errors.PreparedTransactionUnknown(
                f"{self.prepared}: the transactional id was used again after the transaction was prepared, or was not used for"
                f" transactional.id.expiration.ms ({now}); so the transaction has ended, and its records tell how: look for them as a"
                " reader of committed data"
            )
        elif state is PreparedState.COMMITTED:
            self.error = errors.PreparedTransactionCommitted(f"{self.prepared}: it was committed and cannot be aborted any more")
        else:
            self.error = self._lost(seen)

    def _lost(self, seen: Seen | None) -> KafkaError:
        prepared = self.prepared
        age_ms = self._wall_ms - prepared.started_at_ms
        by_its_producer = prepared.transaction_version < 2 and seen is not None and seen.epoch == prepared.producer_epoch
        late = age_ms >= prepared.timeout_ms and not by_its_producer
        if late:
            why = (
                f"its coordinator aborted it, since it was open for longer than its transaction_timeout_ms of {prepared.timeout_ms} (it"
                f" began {age_ms} ms ago): commit sooner, or give the producer a longer one, up to the brokers' transaction.max.timeout.ms"
            )
        else:
            why = "another process aborted it, or a producer took over its transactional id"
        where = ", ".join(f"{topic}-{index}" for topic, index in prepared.partitions)
        error = errors.PreparedTransactionAborted(
            f"{prepared}: the transaction cannot be committed: {why}. Readers of committed data never see its records ({where}):"
            " write them again in another transaction"
        )
        error.timed_out = late
        return error

    def result(self) -> Ended:
        """What became of it."""
        return Ended(self.prepared, self.error is None and not self.sent_end, self.error)


_STANDS_OTHERWISE = frozenset(
    {Code.INVALID_TXN_STATE, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING}
)
"""EndTxn says so when the transaction has ended, or another one has started, since it was looked at."""


class _Asking:
    """Takes the requests of an `Ending` to the coordinator, and the answers back."""

    def __init__(self, ending: Ending, link: CoordinatorLink, config: AdminConfig) -> None:
        self.ending = ending
        self._link = link
        self._config = config
        self._asked: object | None = None
        self._tries = 0
        self._waits = False                                       # answers carry no time: the next step begins the back-off
        self._retry_at_ms = 0

    def step(self, now_ms: int) -> int | None:
        """Sends what can be sent; returns after how many ms it wants to be called again, None after an answer."""
        if self._asked is not None or self.ending.done:
            return None
        if self._waits:
            self._waits = False
            self._retry_at_ms = now_ms + min(self._config.retry_backoff_max_ms, self._config.retry_backoff_ms << min(self._tries, 20))
            self._tries += 1
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms - now_ms
        link = self._link
        if not link.ready(now_ms):
            if link.failure is not None:
                self.ending.error, link.failure = link.failure, None
                return 0
            return link.next_wake_ms(now_ms)
        (self._send_end if self.ending.asks_end else self._send_look)(now_ms)
        return None

    def attempts(self) -> list[KafkaError]:
        """Why it is not done yet."""
        return [*self.ending.attempts, *self._link.attempts]

    def _send_look(self, now_ms: int) -> None:
        request = DescribeTransactionsRequest(transactional_ids=[self.ending.prepared.transactional_id])

        def take(body: Any, where: dict[str, Any]) -> None:
            [found] = body.transaction_states
            if found.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND:
                self.ending.forgotten()
            elif found.error_code:
                self._refused(errors.from_code(found.error_code, str(self.ending.prepared), **where))
            else:
                self.ending.seen(
                    Seen(found.transaction_state, found.producer_id, found.producer_epoch, found.transaction_start_time_ms)
                )

        self._link.send(DescribeTransactionsRequest, lambda version: request, now_ms, self._answered("DescribeTransactions", take))

    def _send_end(self, now_ms: int) -> None:
        prepared = self.ending.prepared
        request = EndTxnRequest(
            transactional_id=prepared.transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            committed=bool(self.ending.commit),
        )
        own_epoch = prepared.transaction_version >= 2

        def take(body: Any, where: dict[str, Any]) -> None:
            if body.error_code:
                self._refused(errors.from_code(body.error_code, str(prepared), **where))
            else:
                self.ending.ended()

        self.ending.sent_end = True
        self._link.send(
            EndTxnRequest,
            lambda version: request,
            now_ms,
            self._answered("EndTxn", take),
            min_version=FIRST_END_WITH_EPOCH if own_epoch else None,
            max_version=None if own_epoch else FIRST_END_WITH_EPOCH - 1,
        )

    def _answered(self, api: str, take: Callable[[Any, dict[str, Any]], None]) -> Callable[[ClientResponse], None]:
        asked = self._asked = object()

        def answered(response: ClientResponse) -> None:
            if asked is not self._asked:
                return
            self._asked = None
            where: dict[str, Any] = {"broker": self._link.broker_id, "api": f"{api} v{response.version}"}
            if response.response is None or response.error is not None:
                self._refused(response.error or errors.DisconnectError("the connection was closed before the answer", **where))
                return
            try:
                take(response.response, where)
            except ValueError as error:                           # an answer about another number of transactional ids
                lost = errors.DisconnectError("the answer leaves the transactional id out", **where)
                lost.__cause__ = error
                self._refused(lost)

        return answered

    def _refused(self, error: KafkaError) -> None:
        if self.ending.refused(error):
            self._waits = True
            if error.code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE):
                self._link.lost(error)


class TwoPhaseClient:
    """Commits and aborts transactions that producers have prepared, from any process: see `KafkaProducer.prepare_transaction`.

    It belongs to no transactional id. Threads may share it; their calls run one after the other. A call that raises KafkaTimeoutError is
    not undone: make it again to learn how it ended.

    Example::

        prepared = PreparedTransaction.from_json(text)
        with TwoPhaseClient(bootstrap_servers="127.0.0.1:9092") as client:
            client.commit(prepared)
    """

    def __init__(
        self, mapping: Mapping[str, Any] | None = None, /, *, clock: Clock | None = None, **settings: Unpack[AdminKeywords]
    ) -> None:
        """Connects with the first call.

        Args:
            mapping: settings under Kafka's names.
            clock: the time; the system's unless given.
            **settings: those of `KafkaAdminClient`.
        """
        self.config = AdminConfig.from_user(mapping, **settings)
        self._driver = CallerDriver(self.config, "TwoPhaseClient", exclusive=False, clock=clock, renewed=self._renewed)
        self._links: dict[str, CoordinatorLink] = {}

    def commit(self, prepared: PreparedTransaction, timeout: float | None = None) -> bool:
        """Commits a prepared transaction. Nothing happens if it was committed before.

        Args:
            prepared: which.
            timeout: seconds, None = default_api_timeout_ms.

        Returns:
            True if this call committed it, False if it was committed before or nothing was written. Where an answer was lost, or two
            processes commit at once, True says that this call may have done it.

        Raises:
            PreparedTransactionAborted: it was aborted, by its coordinator when its time was over (`timed_out`) or by another process. Its
                records have to be written again.
            PreparedTransactionUnknown: its transactional id has been used again since.
            KafkaTimeoutError: how it ends is not known yet.
            KafkaError: a broker refuses, for example the right to write with the transactional id.
        """
        return self._one(prepared, True, timeout)

    def abort(self, prepared: PreparedTransaction, timeout: float | None = None) -> bool:
        """Aborts a prepared transaction. Nothing happens if it was aborted before, by the coordinator for example.

        Args, Returns: as `commit`.

        Raises:
            PreparedTransactionCommitted: it was committed.
            PreparedTransactionUnknown, KafkaTimeoutError, KafkaError: as `commit`.
        """
        return self._one(prepared, False, timeout)

    def commit_all(self, prepared: Iterable[PreparedTransaction], timeout: float | None = None) -> list[Ended]:
        """Commits many transactions at once; one that fails does not keep the others back.

        Args:
            prepared: which.
            timeout: seconds for all together, None = default_api_timeout_ms.

        Returns:
            What became of each, in the same order: `error` is what `commit` raises.
        """
        return [asking.ending.result() for asking in self._run(prepared, True, timeout)]

    def abort_all(self, prepared: Iterable[PreparedTransaction], timeout: float | None = None) -> list[Ended]:
        """Aborts many transactions at once: as `commit_all`."""
        return [asking.ending.result() for asking in self._run(prepared, False, timeout)]

    def states(self, prepared: Iterable[PreparedTransaction], timeout: float | None = None) -> list[PreparedState]:
        """How prepared transactions stand, in the same order; changes nothing.

        Args:
            prepared: which.
            timeout: seconds for all together, None = default_api_timeout_ms.

        Raises:
            KafkaTimeoutError, KafkaError: of the first that could not be looked at.
        """
        found = []
        for asking in self._run(prepared, None, timeout):
            if asking.ending.error is not None:
                raise asking.ending.error
            assert asking.ending.state is not None
            found.append(asking.ending.state)
        return found

    def close(self) -> None:
        """Closes all connections at once; calls of other threads end with ClosedError. A second close does nothing."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _renewed(self, client: NetworkClient) -> None:
        self._links.clear()

    def _one(self, prepared: PreparedTransaction, commit: bool, timeout: float | None) -> bool:
        [asking] = self._run([prepared], commit, timeout)
        ended = asking.ending.result()
        if ended.error is not None:
            raise ended.error
        return not ended.already

    def _run(self, prepared: Iterable[PreparedTransaction], commit: bool | None, timeout: float | None) -> list[_Asking]:
        timeout_ms = self.config.default_api_timeout_ms if timeout is None else round(timeout * 1000)
        wall_ms = self._driver.clock.wall_ms()
        endings = [Ending(each, commit, wall_ms) for each in prepared]
        with self._driver as driver:
            asking = [_Asking(each, self._link(each.prepared.transactional_id), self.config) for each in endings]
            active = asking

            def step(now_ms: int) -> int | None:
                nonlocal active
                active = [each for each in active if not each.ending.done]
                waits = [wait for each in active if (wait := each.step(now_ms)) is not None]
                return min(waits, default=None)

            try:
                driver.run(step, lambda: all(each.ending.done for each in active), timeout_ms)
            finally:
                self._links = {} if len(self._links) > KEPT_LINKS else self._links
            for each in asking:
                if not each.ending.done:
                    what = {True: "its commit", False: "its abort", None: "its state"}[commit]
                    each.ending.error = errors.KafkaTimeoutError(
                        f"{each.ending.prepared}: {what} is not known after {timeout_ms} ms: make the same call again",
                        attempts=[*each.attempts(), *driver.attempts()][-10:],
                    )
            return asking

    def _link(self, transactional_id: str) -> CoordinatorLink:
        link = self._links.get(transactional_id)
        if link is None:
            link = self._links[transactional_id] = CoordinatorLink(
                self._driver.client,
                transactional_id,
                kind=TRANSACTION,
                log=log,
                retry_backoff_ms=self.config.retry_backoff_ms,
                retry_backoff_max_ms=self.config.retry_backoff_max_ms,
            )
        return link


KEPT_LINKS = 1_000
"""Coordinators are remembered for about so many transactional ids."""
