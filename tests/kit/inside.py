"""What tests need from inside of the package, by one name for each thing: where it moves, only this file changes.

Rules:
1. A test looks at what users see. It comes here only for what they do not: what is held, what is left, who waits.
   [test_private_names_of_the_package_become_fewer]
2. A function gives one thing of one object, or does one thing to it. It computes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def sender_of(producer: Any) -> Any:
    """Its thread of I/O."""
    return producer._sender


def accumulator_of(producer: Any) -> Any:
    """Where records wait for their batch."""
    return producer._accumulator


def producer_in(client: Any) -> Any:
    """The engine, or the client that this one wraps."""
    return client._producer


def memory_of(owner: Any) -> Any:
    """What bounds its bytes."""
    return owner._memory


def io_of(sender: Any) -> Any:
    """Its lock of I/O."""
    return sender._io


@contextlib.contextmanager
def io_held(sender: Any) -> Iterator[None]:
    """Its lock of I/O in this thread: its own thread may take it again first, so it is woken until it lets it go to us."""
    while not sender._io.acquire(timeout=0.05):
        sender.client.wakeup()
    try:
        yield
    finally:
        sender._io.release()


def consumer_in(client: Any) -> Any:
    """The client that this one wraps."""
    return client._consumer


def group_of(consumer: Any) -> Any:
    """Its member of the group."""
    return consumer._group


def fetcher_of(consumer: Any) -> Any:
    """Its fetches."""
    return consumer._fetcher


def sessions_of(fetcher: Any) -> Any:
    """Its fetch sessions."""
    return fetcher._sessions


def queue_of(owner: Any) -> Any:
    """What waits in it."""
    return owner._queue


def subscription_of(consumer: Any) -> Any:
    """What is assigned, and positions."""
    return consumer._subscription


def topics_of(owner: Any) -> Any:
    """What it knows of topics."""
    return owner._topics


def loop_of(owner: Any) -> Any:
    """Its loop."""
    return owner._loop


def calls_of(owner: Any) -> Any:
    """Calls that have not ended."""
    return owner._calls


def clock_of(owner: Any) -> Any:
    """What it asks for the time."""
    return owner._clock


def lock_of(owner: Any) -> Any:
    """What serializes it."""
    return owner._lock


def engine_of(client: Any) -> Any:
    """The engine behind its face."""
    return client._engine


def metadata_of(client: Any) -> Any:
    """What it knows of the cluster."""
    return client._metadata


def driver_of(client: Any) -> Any:
    """What drives its network."""
    return client._driver


def drivers_of(admin: Any) -> Any:
    """Its drivers."""
    return admin._drivers


def connections_of(network: Any) -> Any:
    """Its connections by node."""
    return network._connections


def selector_of(owner: Any) -> Any:
    """What waits for its sockets."""
    return owner._selector


def thread_of(owner: Any) -> Any:
    """The thread that it runs on."""
    return owner._thread


def brokers_of(cluster: Any) -> Any:
    """Its brokers."""
    return cluster._brokers


def controller_of(cluster: Any) -> Any:
    """Its controller."""
    return cluster._controller


def host_of(controller: Any) -> Any:
    """The host behind a link or a server."""
    return controller._host


def log_of(host: Any) -> Any:
    """Its log."""
    return host._log


def kept_of(owner: Any) -> Any:
    """What it has kept."""
    return owner._kept


def short_send_of(producer: Any) -> Any:
    """The compiled short cut of its `send`."""
    return producer._short_send


def take_general_way(producer: Any) -> None:
    """Its `send` has no short cut any more."""
    producer._short_send = None


def general_send_of(producer: Any) -> Any:
    """Its `send` without the short cut."""
    return producer._send_general


def line_of(producer: Any) -> Any:
    """Tasks that wait for its memory."""
    return producer._line


def pool_of(producer: Any) -> Any:
    """The pool of its memory."""
    return producer._pool


def bind(producer: Any) -> Any:
    """Binds it to the running loop."""
    return producer._bind()


def timer_of(client: Any) -> Any:
    """The loop's timer for its deadlines."""
    return client._timer


def client_of(engine: Any) -> Any:
    """The client within an engine."""
    return engine._client


def chunk_of(reader: Any) -> Any:
    """Records that it has in hand."""
    return reader._chunk


def look_of(reader: Any) -> Any:
    """Its look at whether the program goes on."""
    return reader._look


def descriptor_of(driver: Any) -> Any:
    """What the loop watches for it."""
    return driver._descriptor


def poller_of(selector: Any) -> Any:
    """What asks the system for events."""
    return selector._poller


def listeners_of(selector: Any) -> Any:
    """Its listening sockets, by descriptor."""
    return selector._listeners


def starved_of(selector: Any) -> Any:
    """Listeners that it leaves alone for now."""
    return selector._starved


def lookups_of(client: Any) -> Any:
    """Its questions for names."""
    return client._lookups


def running_lookups(client: Any) -> Any:
    """Questions for names that have no answer yet."""
    return client._lookups._running


def found_out_of(client: Any) -> Any:
    """What its helper threads have found out, for the next poll."""
    return client._found_out


def needs_versions_of(client: Any) -> Any:
    """The nodes whose versions are still to be asked for."""
    return client._needs_versions


def certificates_of(cluster: Any) -> Any:
    """The authority, and what it has issued."""
    return cluster._certificates


def contexts_of(runtime: Any) -> Any:
    """What it knows of its partitions."""
    return runtime._contexts


def slices_of(broker: Any) -> Any:
    """Its long requests."""
    return broker._slices


def samples_of(use: Any) -> Any:
    """What was used by windows."""
    return use._samples


def decisions_of(authorizer: Any) -> Any:
    """What it remembers."""
    return authorizer._decisions


def expressions_of(resolver: Any) -> Any:
    """The expressions that it remembers."""
    return resolver._expressions


def heartbeat_of(link: Any) -> Any:
    """When it says again that its broker lives."""
    return link._heartbeat


def books_by_partition(transactions: Any) -> Any:
    """What it knows of each partition's numbers."""
    return transactions._partitions


def doubts_of(transactions: Any) -> Any:
    """Partitions of which nobody knows which number is next."""
    return transactions._unresolved


def is_wanted(metadata: Any) -> Any:
    """Whether it has been asked for."""
    return metadata._wanted


def retry_log_of(sender: Any) -> Any:
    """What notes retries for the log."""
    return sender._retry_log


def is_closing(sender: Any) -> Any:
    """Whether its end has been asked for."""
    return sender._closing


def waiters_of(pool: Any) -> Any:
    """Those that wait for its memory."""
    return pool._waiters


def changed_of(producer: Any) -> Any:
    """The condition that its callers wait at."""
    return producer._changed


def executor_of(timer: Any) -> Any:
    """Where its tasks run."""
    return timer._executor


def condition_of(timer: Any) -> Any:
    """Its lock, on which it waits."""
    return timer._condition


def reaper_of(purgatory: Any) -> Any:
    """Its thread."""
    return purgatory._reaper


def change_of(cluster: Any) -> Any:
    """Makes a change behind those of the same broker."""
    return cluster._change


def requests_of(cluster: Any) -> Any:
    """Hands its controller a request."""
    return cluster._submit


def resets_of(positions: Any) -> Any:
    """Its questions under way about where to begin."""
    return positions._resets


def validations_of(positions: Any) -> Any:
    """Its questions under way about leader epochs."""
    return positions._validations


def refused_in(positions: Any) -> Any:
    """What is asked about again after a back-off."""
    return positions._refused


def errors_in(positions: Any) -> Any:
    """What it has to raise, by partition."""
    return positions._errors


def errors_of_paused(positions: Any) -> Any:
    """What it will raise of partitions that are paused."""
    return positions._of_paused


def left_out_of(positions: Any) -> Any:
    """Partitions that their topic does not have."""
    return positions._left_out


def flights_of(registry: Any) -> Any:
    """What threads wait for together, by question."""
    return registry._once._flights


def asking_of(registry: Any) -> Any:
    """What puts a question to one address."""
    return registry._ask


def getting_of(registry: Any) -> Any:
    """What puts a question to all addresses."""
    return registry._get


def watched_by(selector: Any) -> Any:
    """Muted peers whose end it looks for."""
    return selector._watched


def authority_of(certificates: Any) -> Any:
    """What signs them."""
    return certificates._authority


def note_committed(member: Any, offsets: Any) -> None:
    """The coordinator has taken these offsets."""
    member._note_committed(offsets)


def classes_by_code(errors: Any) -> Any:
    """The class of each error code."""
    return errors._BY_CODE
