"""Long requests in slices: between two of them the loop serves the other connections.

    job = PartsJob(parts, handler, state, call, request)        # a request with many elements, as several smaller ones
    job = StepsJob(generator, call)                             # a handler that yields between its steps
    slices.add(job); slices.run(clock.now_ms)                   # once per turn of the loop

Rules:

1. A step is short by its number of elements. One turn of the loop runs steps of one job only, until `SLICE_MS` have passed.
   [test_steps_have_an_end_without_a_clock, test_no_request_of_a_megabyte_holds_up_others]
2. The parts of a request are handed to its handler one after the other, each like a request of its own, and their answers are joined. What
   the request names twice is so cut that the answer is that to the whole request. The authorizer is asked once for all parts.
   [test_the_answer_to_the_parts_is_that_to_the_whole, test_each_check_is_made_once_for_a_request]
3. A job ends with its connection: what waits in its parts is abandoned. [test_a_connection_that_ends_in_the_middle_leaves_nothing]
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from kafkacore.broker.state import BrokerState, Call, Outcome, WholeRequest
from kafkacore.broker.throttling import Metered
from kafkacore.errors import InvalidRequest, KafkaError
from kafkacore.protocol.schema import Response

logger = logging.getLogger(__name__)

SLICE_MS = 5
"""For how long a turn of the loop goes on with a job."""
MAX_STEPS = 64
"""How many steps a turn runs where the clock does not go on, as in tests."""
PART_ELEMENTS = 200
SMALLEST_PARTS = 8
"""No part has fewer elements, so that most requests need not be looked at."""
MAX_WHOLE_ELEMENTS = 10_000
"""How many elements may be carried out as a whole."""
MAX_OUTSTANDING = 16
"""Parts of one request that wait for their answers at the same time."""
_REGROUP_STEP = 5_000

Result = Response | Outcome
Steps = Generator[None, None, Result]
"""What a handler returns that does its work in steps: it yields between them and returns its result."""


class Job(Protocol):
    """Work in steps.

    Attributes:
        meter: measures the time that it takes, if that counts.
    """

    meter: Metered | None

    def step(self) -> bool:
        """Does some; whether it can go on at once."""

    def is_completed(self) -> bool:
        """Whether it has ended."""

    def fail(self) -> None:
        """A step failed: ends it and its connection."""


class Slices:
    """The jobs of one server, each of which goes on in its turn.

    Attributes:
        ready: those that can go on now.
    """

    def __init__(self) -> None:
        self.ready: deque[Job] = deque()

    def add(self, job: Job) -> None:
        """Has a job go on."""
        self.ready.append(job)

    def run(self, now_ms: Callable[[], int]) -> None:
        """One slice of the job whose turn it is; nothing without one."""
        while self.ready:
            job = self.ready.popleft()
            if job.is_completed():
                continue
            until_ms = now_ms() + SLICE_MS
            meter = job.meter
            if meter is not None:
                meter.resume()
            try:
                for _ in range(MAX_STEPS):
                    if not job.step():
                        return
                    if now_ms() >= until_ms:
                        break
            except KafkaError as error:
                logger.warning("a request is given up and its connection closed: %s", error)
                job.fail()
                return
            except Exception:
                logger.exception("a request is given up and its connection closed")
                job.fail()
                return
            finally:
                if meter is not None:
                    meter.pause()
            self.ready.append(job)
            return

    def clear(self) -> None:
        """Forgets all jobs."""
        self.ready.clear()


class StepsJob:
    """A handler that yields between its steps. What it waits in after its last step takes its place in the call."""

    def __init__(self, steps: Steps, call: Call, finish: Callable[[Result], None]) -> None:
        """Args:
        steps: the handler's.
        call: whose operation this is.
        finish: gets the result.
        """
        self._steps = steps
        self._call = call
        self._finish = finish
        self._completed = False
        self.meter = call.meter
        call.operation = self

    def step(self) -> bool:
        try:
            next(self._steps)
        except StopIteration as end:
            self._completed = True
            self._finish(end.value)
            return False
        return not self._completed

    def is_completed(self) -> bool:
        return self._completed

    def fail(self) -> None:
        self._completed = True
        self._finish(Outcome.CLOSE)

    def abandon(self) -> None:
        """The peer has closed its connection."""
        self._completed = True
        self._steps.close()


def run_through(steps: Generator[None, None, Response]) -> Response:
    """The result of steps between which nothing else is to be done."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            response: Response = end.value
            return response


class Repeats(enum.Enum):
    """What becomes of an element that a request names more than once."""

    EACH = "every mention is answered by itself"
    FIRST = "the first mention counts"
    LAST = "the last mention counts"
    REFUSED = "all mentions are refused, with one answer"
    EACH_REFUSED = "every mention is refused"


class Parts(NamedTuple):
    """How a request is cut into smaller ones, and their answers are joined.

    Attributes:
        items: the request's list, and the lists within its items, from the outside to the inside.
        answers: the response's list, and those within.
        key: the fields by which an item and its answer are known, for every list of `answers` but the innermost; an answer need not
            have all of them.
        repeats: what holds for elements that are named twice.
        element: the fields by which an element of the innermost list is known; none if it is a name or number itself.
        grouped: the handler answers for all mentions of an item together.
        elements: how many elements a part has.
        outstanding: how many parts may wait for their answers at the same time.
        first_version, last_version: of the API that have these lists.
        inner: lists within an item that are not cut.
        max_inner_elements: how many elements each of those may have.
        refused: for APIs that change something: the answers to the elements of a part that is refused as a whole, as `refused(part,
            error_code, error_message)`. What other parts did is kept then. Without it one refused part refuses the whole request.
    """

    items: tuple[str, ...]
    answers: tuple[str, ...]
    key: tuple[str, ...] = ()
    repeats: Repeats = Repeats.EACH
    element: tuple[str, ...] = ()
    grouped: bool = False
    elements: int = PART_ELEMENTS
    outstanding: int = MAX_OUTSTANDING
    first_version: int = 0
    last_version: int = 1 << 15
    inner: tuple[str, ...] = ()
    max_inner_elements: int = MAX_WHOLE_ELEMENTS
    refused: Callable[[Any, int, str | None], list[Any]] | None = None

    def is_for(self, call: Call) -> bool:
        """Whether a request is to be cut."""
        return call.elements > self.elements and self.first_version <= call.version <= self.last_version

    def cut(self, request: Any) -> Iterator[tuple[Any, int]]:
        """The smaller requests, with how many levels of lists go on in the middle of an item; None between two steps that find them."""
        items: Sequence[Any] = getattr(request, self.items[0]) or []
        chunks: Iterator[tuple[list[Any] | None, int]]
        if self.repeats is Repeats.EACH:
            chunks = _chunks(items, self.items[1:], self.elements)
        else:
            chunks = ((chunk, 0) for chunk in self._chunks_by_element(items))
        for chunk, continued in chunks:
            part = None if chunk is None else request._replace(**{self.items[0]: chunk})
            if part is not None and self.inner:
                self.check(part)
            yield part, continued

    def _chunks_by_element(self, items: Sequence[Any]) -> Iterator[list[Any] | None]:
        """Chunks in which repeated elements are together, or only once."""
        mentions: dict[Any, list[tuple[Any, Any]]] = {}
        for nth, (item, element) in enumerate(self._elements(items)):
            mentions.setdefault(self._key_of(item, element), []).append((item, element))
            if nth % _REGROUP_STEP == 0:
                yield None
        chunk: list[tuple[Any, Any]] = []
        for named in mentions.values():
            if self.repeats is Repeats.FIRST:
                named = named[:1]
            elif self.repeats is Repeats.LAST:
                named = named[-1:]
            elif self.repeats is Repeats.REFUSED:
                named = named[:2]
            at = 0
            while at < len(named):
                stop = at + self.elements
                if len(named) - stop == 1:                    # alone it would not be refused
                    stop += 1
                chunk += named[at:stop]
                at = stop
                if len(chunk) >= self.elements:
                    yield self._joined(chunk)
                    chunk = []
        if chunk:
            yield self._joined(chunk)

    def _elements(self, items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        if len(self.items) == 1:
            for item in items:
                yield item, None
            return
        for item in items:
            for element in getattr(item, self.items[1]) or []:
                yield item, element

    def _key_of(self, item: Any, element: Any) -> Any:
        named = item if len(self.items) == 1 else element
        inner = tuple(getattr(named, field) for field in self.element) if self.element else named
        return inner if len(self.items) == 1 else (*(getattr(item, field) for field in self.key), inner)

    def _joined(self, chunk: Iterable[tuple[Any, Any]]) -> list[Any]:
        if len(self.items) == 1:
            return [item for item, _ in chunk]
        joined: list[tuple[Any, list[Any]]] = []
        for item, element in chunk:
            if joined and joined[-1][0] is item:
                joined[-1][1].append(element)
            else:
                joined.append((item, [element]))
        return [item._replace(**{self.items[1]: elements}) for item, elements in joined]

    def check(self, request: Any) -> None:
        """Refuses items that are too long by themselves.

        Raises:
            InvalidRequest: a list within an item, which is not cut, has too many elements.
        """
        for item in getattr(request, self.items[0]):
            for name in self.inner:
                if len(getattr(item, name) or ()) > self.max_inner_elements:
                    raise InvalidRequest(
                        f"{type(request).__name__}, {self.items[0]}.{name}: more than {self.max_inner_elements} elements in one item"
                    )


class _Joiner:
    """Makes one answer of those to the parts of a request, which come in the order of the parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._whole: Any = None
        self._answers: list[Any] = []
        self._places: dict[Any, Any] = {}
        self._nodes: dict[int, Any] = {}
        self._refused = False
        self._refusal: Any = None                             # the first answer that refuses its part, while no part was served
        self._throttle_ms = 0

    def add(self, response: Any, continued: int, part: Any) -> None:
        """Takes the answer to the next part.

        Args:
            response: the answer.
            continued: how many levels of lists of the part begin in the middle of an item.
            part: the request that it answers.
        """
        if self._refused:
            return
        self._throttle_ms = max(self._throttle_ms, getattr(response, "throttle_time_ms", 0))
        code = getattr(response, "error_code", 0)
        if code and self._parts.refused is not None:
            if self._whole is None or self._refusal is not None:
                self._whole = self._refusal = self._refusal or response
            if not getattr(response, self._parts.answers[0]):
                answered = self._parts.refused(part, code, getattr(response, "error_message", None))
                response = response._replace(**{self._parts.answers[0]: answered})
        else:
            self._whole, self._refusal = response, None
            self._refused = bool(code)
        if self._refused:
            return
        for node in response.node_endpoints if "node_endpoints" in response.FIELDS else ():
            self._nodes[node.node_id] = node
        name, *inner = self._parts.answers
        answers = getattr(response, name)
        if self._parts.grouped and inner:
            self._group(self._answers, (), answers, inner)
        else:
            self._append(self._answers, answers, inner, continued)

    def _key(self, answer: Any) -> tuple[Any, ...]:
        return tuple(getattr(answer, name) for name in self._parts.key if name in answer.FIELDS)

    def _group(self, into: list[Any], above: tuple[Any, ...], answers: Sequence[Any], inner: Sequence[str]) -> None:
        """Adds answers to those for the same items."""
        for answer in answers:
            key = (*above, self._key(answer))
            known = self._places.get(key)
            more = getattr(answer, inner[0])
            if known is None:
                self._places[key] = answer
                into.append(answer)
                if len(inner) > 1:
                    self._places.update(((*key, self._key(each)), each) for each in more)
            elif len(inner) > 1:
                self._group(getattr(known, inner[0]), key, more, inner[1:])
            else:
                getattr(known, inner[0]).extend(more)

    def _append(self, answers: list[Any], more: Sequence[Any], inner: Sequence[str], continued: int) -> None:
        """Adds answers; an item that was cut is answered by the last ones so far and the first of these."""
        if continued and inner and answers and more and self._key(answers[-1]) == self._key(more[0]):
            last, first, more = answers[-1], more[0], more[1:]
            if getattr(first, "error_code", 0):
                answers[-1] = first
            elif not getattr(last, "error_code", 0):
                self._append(getattr(last, inner[0]), getattr(first, inner[0]), inner[1:], continued - 1)
        answers.extend(more)

    def result(self) -> Any:
        """The answer to the whole request; None without any."""
        if self._whole is None or self._refused:
            return self._whole
        if self._refusal is not None and not getattr(self._refusal, self._parts.answers[0]):
            return self._refusal                              # nothing was done
        whole = self._whole._replace(**{self._parts.answers[0]: self._answers})
        if self._throttle_ms:
            whole = whole._replace(throttle_time_ms=self._throttle_ms)
        return whole._replace(node_endpoints=list(self._nodes.values())) if self._nodes else whole


def _count(item: Any, path: tuple[str, ...]) -> int:
    if not path:
        return 1
    nested = getattr(item, path[0]) or ()
    return max(len(nested) if len(path) == 1 else sum(_count(each, path[1:]) for each in nested), 1)


def _chunks(items: Sequence[Any], path: tuple[str, ...], size: int) -> Iterator[tuple[list[Any], int]]:
    """Cuts a list, and where necessary the lists within its items, into pieces with so many elements; see `Parts.cut`."""
    if not path:
        for start in range(0, len(items), size):
            yield list(items[start : start + size]), 0
        return
    chunk: list[Any] = []
    room = size
    for item in items:
        count = _count(item, path)
        if count > room and chunk:
            yield chunk, 0
            chunk, room = [], size
        if count > size:
            for nth, (nested, continued) in enumerate(_chunks(getattr(item, path[0]), path[1:], size)):
                yield [item._replace(**{path[0]: nested})], continued + 1 if nth else 0
        else:
            chunk.append(item)
            room -= count
    if chunk:
        yield chunk, 0


class PartsJob:
    """A request that is handed to its handler in parts."""

    def __init__(
        self,
        parts: Parts,
        handler: Callable[[Any, Call, Any], Any],
        state: BrokerState,
        call: Call,
        request: Any,
        slices: Slices,
        now: Callable[[], tuple[int, int]],
        finish: Callable[[Result], None],
    ) -> None:
        """Args:
        parts: how it is cut.
        handler: the API's.
        state: the server's.
        call: of the whole request.
        request: the request.
        slices: where this job goes on when an answer comes.
        now: monotonic time and time since the epoch.
        finish: gets the result.
        """
        self._parts = parts
        self._handler = handler
        self._state = state
        self._call = call
        self._slices = slices
        self._now = now
        self._finish = finish
        self._shared = WholeRequest(request)
        self._cut = parts.cut(request)
        self._all_cut = False
        self._joiner = _Joiner(parts)
        self._count = 0
        self._added = 0
        self._pieces: dict[int, tuple[int, Any]] = {}  # of each part that is not answered: as `_Joiner.add` takes it
        self._early: dict[int, Response] = {}  # answers that came before those of earlier parts
        self._outstanding: dict[int, Call] = {}
        self._waits = False
        self._completed = False
        self.meter = call.meter
        call.operation = self

    def step(self) -> bool:
        if len(self._outstanding) >= self._parts.outstanding:
            self._waits = True
            return False
        cut = next(self._cut, None)
        if cut is None:
            self._all_cut = True
            self._maybe_finish()
            return False
        request, continued = cut
        if request is not None:
            self._ask(request, continued)
        return not self._completed

    def _ask(self, request: Any, continued: int) -> None:
        nth, self._count = self._count, self._count + 1
        self._pieces[nth] = continued, request if self._parts.refused is not None else None
        now_ms, wall_ms = self._now()
        whole = self._call
        call = Call(
            whole.version, whole.client_id, now_ms, wall_ms, lambda response: self._answered(nth, response), self.fail, whole.client_host
        )
        call.session, call.principal, call.listener = whole.session, whole.principal, whole.listener
        call.whole = self._shared
        self._outstanding[nth] = call
        result = self._handler(self._state, call, request)
        if isinstance(result, Response):
            self._answered(nth, result)
        elif result is Outcome.SILENT:
            self._answered(nth, None)
        elif result is Outcome.CLOSE:
            self._end(result)

    def _answered(self, nth: int, response: Response | None) -> None:
        if self._completed or self._outstanding.pop(nth, None) is None:
            return
        if response is None:
            self._added += 1                                  # no part has an answer then
        else:
            self._early[nth] = response
        while self._added in self._early:
            self._joiner.add(self._early.pop(self._added), *self._pieces.pop(self._added))
            self._added += 1
        if self._waits:
            self._waits = False
            self._slices.add(self)
        elif self._all_cut:
            self._maybe_finish()

    def _maybe_finish(self) -> None:
        if not self._outstanding:
            response = self._joiner.result()
            self._end(Outcome.SILENT if response is None else response)

    def fail(self) -> None:
        if not self._completed:
            self._end(Outcome.CLOSE)

    def _end(self, result: Result) -> None:
        self.abandon()
        self._finish(result)

    def is_completed(self) -> bool:
        return self._completed

    def abandon(self) -> None:
        """The peer has closed its connection, or nothing more is to be asked."""
        self._completed = True
        self._cut = iter(())
        outstanding, self._outstanding = self._outstanding, {}
        for call in outstanding.values():
            if call.operation is not None and not call.operation.is_completed():
                call.operation.abandon()
