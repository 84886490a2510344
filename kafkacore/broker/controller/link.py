"""How a broker talks to its controller, and how its image follows the controller's.

    submit(request) ------------> decided under the controller's lock, records written
    done(response)  <------------ this broker's image has applied them
    records_written() ----------> the other brokers get a message and apply them in their own threads

Rules:

1. An image is touched by its broker's owner thread only; before the broker has a thread, by the thread that starts it.
   [test_an_image_changes_only_when_its_broker_turns_to_it]
2. `done` runs when the image has reached the response's offset, so that the broker knows what it answers; for topics and
   partitions that were created, when this broker has opened its own, which takes it several turns of its loop.
   [test_an_answer_is_given_when_the_image_knows_what_it_tells, test_each_turn_opens_some_and_the_answer_comes_with_the_last]
3. Records are applied one batch after the other, never inside the telling of another: what a listener submits in it waits its turn.
   [test_what_a_listener_asks_for_is_applied_and_answered_after_the_change_it_hears_of]

Source: kafka.server.{NodeToControllerChannelManagerImpl, BrokerLifecycleManager}, org.apache.kafka.image.loader.MetadataLoader.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from kafkacore.broker.cluster import ClusterImage, new_uuid
from kafkacore.broker.controller.host import ControllerHost
from kafkacore.broker.controller.state import Requester
from kafkacore.config_listeners import Listener
from kafkacore.config_security import SECURITY_PROTOCOLS
from kafkacore.errors import Code, KafkaError, from_code
from kafkacore.protocol import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    RegistrationFeature,
    RegistrationListener,
)
from kafkacore.protocol.schema import Request, Response
from kafkacore.timer import LoopTimer, TimerTask
from kafkacore.types import Node

logger = logging.getLogger(__name__)

Done = Callable[[Response | KafkaError], None]
Post = Callable[[Callable[[], None]], None]
LogDirs = Callable[[], tuple[list[bytes], list[bytes]]]

REGISTRATION_VERSION = 4
HEARTBEAT_VERSION = 2


class ControllerLink(Protocol):
    """A broker's way to its controller. All methods belong to the broker's owner thread."""

    broker_epoch: int
    """This broker's epoch: of its registration; -1 before the first."""

    log_dirs: LogDirs
    """Tells the ids of this broker's log directories: those that work, those that do not."""

    def submit(self, request: Request, version: int, done: Done, requester: Requester | None = None) -> None:
        """Has the controller carry out a request.

        Args:
            request: of an API the controller serves.
            version: of the API.
            done: gets the response once this broker's image has applied its records, or why it did not come. May run before
                `submit` returns.
            requester: the client it comes from; None if it comes from this broker.
        """

    def start(self, node: Node, listeners: Sequence[Listener] = ()) -> None:
        """Registers this broker, begins to follow the log, and has the broker unfenced when it has caught up.

        Args:
            node: the broker, as the others see it.
            listeners: its listeners, that of the other brokers first; one at the node's address if left out.
        """

    def shut_down(self, done: Callable[[], None]) -> None:
        """Hands over what this broker leads.

        Args:
            done: called when the others know, so that this broker may go.
        """

    def fence(self) -> None:
        """This broker cannot serve until it starts again, since its disks have failed: others are to lead."""

    def log_dir_failed(self) -> None:
        """One of several log directories has failed: others are to lead what lies there."""

    def close(self) -> None:
        """This broker is gone; whatever it still leads goes to others."""

    is_opening: Callable[[], bool]
    """Whether this broker has not opened all partitions that its image gives it; answers to those who create some wait for that."""

    def opened(self) -> None:
        """All partitions are open."""


class LinkBase:
    """What every link has: an image that follows, answers that wait for it, and wishes that heartbeats carry."""

    def __init__(self, node_id: int, image: ClusterImage, timer: LoopTimer) -> None:
        self.broker_epoch = -1
        self.log_dirs: LogDirs = lambda: ([], [])
        self._node_id = node_id
        self._image = image
        self._timer = timer
        self._heartbeat: TimerTask | None = None
        self._applying = False
        self._waiting: deque[tuple[int, Response, Done]] = deque()
        self._created: deque[tuple[Response, Done]] = deque()
        self.is_opening: Callable[[], bool] = lambda: False
        """Whether this broker has not opened all partitions that its image gives it."""
        self._on_shutdown: Callable[[], None] | None = None
        self._want_fence = False

    def _settle(self) -> None:
        """Gives out the answers that tell what the image knows by now."""
        while self._waiting and self._waiting[0][0] <= self._image.next_offset and not self._applying:
            _, response, done = self._waiting.popleft()
            if isinstance(response, (CreateTopicsResponse, CreatePartitionsResponse)) and self.is_opening():
                self._created.append((response, done))
            else:
                done(response)

    def opened(self) -> None:
        """All partitions are open: who created them is answered."""
        while self._created and not self.is_opening():
            response, done = self._created.popleft()
            done(response)

    def _registration(self, node: Node, listeners: Sequence[Listener], cluster_id: str) -> BrokerRegistrationRequest:
        """Of a new incarnation."""
        self._want_fence = False
        protocol = self._image.config.security_inter_broker_protocol
        endpoints = [(each.name, *each.advertised, each.protocol) for each in listeners] or [(protocol, node.host, node.port, protocol)]
        return BrokerRegistrationRequest(
            broker_id=node.id,
            cluster_id=cluster_id,
            incarnation_id=new_uuid(),
            listeners=[
                RegistrationListener(name=name, host=host, port=port, security_protocol=SECURITY_PROTOCOLS.index(protocol))
                for name, host, port, protocol in endpoints
            ],
            features=[
                RegistrationFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in self._image.supported_features.items()
            ],
            rack=node.rack,
            log_dirs=self.log_dirs()[0],
            previous_broker_epoch=self.broker_epoch,
        )

    def _heartbeat_request(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._image.next_offset,
            want_fence=self._want_fence,
            want_shut_down=self._on_shutdown is not None,
            offline_log_dirs=self.log_dirs()[1],
        )

    def _beat(self) -> None:
        """Sends a heartbeat now."""
        raise NotImplementedError

    def _plan_heartbeat(self, wait_ms: int) -> None:
        self._heartbeat = TimerTask(wait_ms, self._beat)
        self._timer.add(self._heartbeat)

    def _cancel_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None

    def fence(self) -> None:
        """See `ControllerLink.fence`."""
        self._want_fence = True
        self._beat()

    def log_dir_failed(self) -> None:
        """See `ControllerLink.log_dir_failed`: heartbeats tell it."""
        self._beat()


class LocalControllerLink(LinkBase):
    """To a controller in the same process."""

    def __init__(self, host: ControllerHost, node_id: int, image: ClusterImage, timer: LoopTimer, post: Post) -> None:
        """Follows the controller's log from now on.

        Args:
            host: the controller.
            node_id: this broker.
            image: this broker's.
            timer: of the owner thread, for heartbeats.
            post: leaves a message for the owner thread.
        """
        super().__init__(node_id, image, timer)
        self._host = host
        self._post = post
        self._notified = threading.Event()
        self._registered = False
        self._is_for_tokens = False                           # the next heartbeat
        image.apply(*host.follow(self))

    # ---- following

    def applied_offset(self) -> int:
        return self._image.next_offset

    def records_written(self) -> None:
        if not self._notified.is_set():
            self._notified.set()
            self._post(self.catch_up)

    def catch_up(self) -> None:
        """Applies what was written since."""
        self._notified.clear()
        if self._applying:
            return
        self._applying = True
        try:
            while batches := self._host.batches_from(self._image.next_offset):
                for batch in batches:
                    self._image.apply(batch.records, batch.next_offset)
        finally:
            self._applying = False
        self._settle()
        if self._registered:
            self._host.reached(self._node_id, self.broker_epoch, self._image.next_offset)
            self._schedule_heartbeat()

    # ---- requests

    def submit(self, request: Request, version: int, done: Done, requester: Requester | None = None) -> None:
        try:
            response, offset = self._host.submit(request, version, requester)
        except KafkaError as error:
            done(error)
            return
        self._waiting.append((offset, response, done))
        self.catch_up()

    # ---- life

    def start(self, node: Node, listeners: Sequence[Listener] = ()) -> None:
        self.catch_up()
        response, _ = self._host.submit(self._registration(node, listeners, self._host.cluster_id), REGISTRATION_VERSION)
        assert isinstance(response, BrokerRegistrationResponse)
        if response.error_code:
            raise from_code(response.error_code, "the controller refused the registration", broker=node.id)
        self.broker_epoch = response.broker_epoch
        self._registered = True
        self._on_shutdown = None
        self.catch_up()
        self._beat()

    def _beat(self) -> None:
        """One heartbeat; the first after a registration has the broker unfenced."""
        self._cancel_heartbeat()
        if not self._registered:
            return
        self._host.do_what_is_due()
        try:
            response, _ = self._host.submit(self._heartbeat_request(), HEARTBEAT_VERSION)
        except KafkaError as error:
            logger.error("broker %d: heartbeat failed: %s", self._node_id, error)
            self._schedule_heartbeat()
            return
        assert isinstance(response, BrokerHeartbeatResponse)
        if response.error_code:
            logger.warning("broker %d: heartbeat refused: %s", self._node_id, Code(response.error_code).name)
        self.catch_up()
        if (response.should_shut_down or response.error_code) and self._on_shutdown is not None:  # refused: it has nothing of ours left
            done, self._on_shutdown = self._on_shutdown, None
            self._registered = False
            done()

    def _schedule_heartbeat(self) -> None:
        """Only where another broker could notice: one alone needs no heartbeat, and wakes for delegation tokens that may end."""
        if self._is_for_tokens and len(self._image.brokers) > 1:
            self._cancel_heartbeat()
        if self._heartbeat is not None:
            return
        self._is_for_tokens = len(self._image.brokers) <= 1
        if not self._is_for_tokens:
            self._plan_heartbeat(self._host.config.broker_heartbeat_interval_ms)
        elif self._image.delegation_tokens:
            self._plan_heartbeat(self._host.config.delegation_token_expiry_check_interval_ms)

    def shut_down(self, done: Callable[[], None]) -> None:
        if not self._registered:
            done()
            return
        self._on_shutdown = done
        self._ask_again()
        if self._on_shutdown is not None:
            self._beat()  # the first one began the shutdown; if no replica has to catch up, the second ends it

    def _retry_shutdown(self) -> None:
        """Called under the controller's lock when another broker has caught up."""
        self._post(self._ask_again)

    def _ask_again(self) -> None:
        if self._on_shutdown is not None:
            self._beat()
            if self._on_shutdown is not None:
                self._host.when_others_move(self._node_id, self._retry_shutdown)

    def close(self) -> None:
        self._registered = False
        self._on_shutdown = None
        self._cancel_heartbeat()
        self._host.broker_lost(self._node_id, self.broker_epoch)
        self.catch_up()
