# A request's path through the network client, compiled base of net/client.py: from `send` over the selector to the callback. Its rules are told
# there; connecting, versions, metadata and everything that goes wrong stay in Python.

from collections import deque as _request_deque

from kafkacore.errors import UnsupportedVersion

cdef enum:
    CONNECTION_READY = 3          # net/connection.py: READY
    API_VERSIONS_KEY = 18
    UNSUPPORTED_VERSION_CODE = 35

cdef object USER_REQUEST = None
cdef object METADATA_REQUEST = None


def _bind_request_kinds(user, metadata):
    """Gives the client code the kinds of requests; called once by kafkacore.net.request."""
    global USER_REQUEST, METADATA_REQUEST
    USER_REQUEST = user
    METADATA_REQUEST = metadata


@cython.final
cdef class ClientRequest:
    """A request and, once it is sent, its place in the stream (made by `NetworkClient.new_client_request`).

    Attributes:
        node_id: Where it goes.
        api: Request class.
        build: Called with the negotiated version to make the request.
        created_ms: When it was made.
        expect_response: False for acks=0.
        timeout_ms: Time the answer may take, from the send on.
        callback: Called with the ClientResponse at the end of a poll.
        min_version: Lowest version that can express the request.
        max_version: Highest version to use.
        left: A struct of the answer whose arrays are checked and left as bytes (native/fetched.pxi), None for an answer decoded to the end.
        correlation_id: Number in the stream, -1 before the send.
        version: Negotiated version, -1 before the send.
        send: The frame, None before the send.
        sent_ms: When it was sent.
        deadline_ms: When the answer is late.
    """

    cdef public object node_id
    cdef public object api
    cdef public object build
    cdef public int64_t created_ms
    cdef public bint expect_response
    cdef public int64_t timeout_ms
    cdef public object callback
    cdef public int min_version
    cdef public int max_version
    cdef public object left
    cdef public object kind
    cdef public int32_t correlation_id
    cdef public int version
    cdef public NetworkSend send
    cdef public int64_t sent_ms
    cdef public int64_t deadline_ms

    def __cinit__(self, node_id, api, build, int64_t created_ms, bint expect_response, int64_t timeout_ms, callback, int min_version,
                  int max_version, left=None):
        self.node_id = node_id
        self.api = api
        self.build = build
        self.created_ms = created_ms
        self.expect_response = expect_response
        self.timeout_ms = timeout_ms
        self.callback = callback
        self.min_version = min_version
        self.max_version = max_version
        self.left = left
        self.kind = USER_REQUEST
        self.correlation_id = -1
        self.version = -1
        self.sent_ms = -1
        self.deadline_ms = LOOKING

    def __repr__(self):
        return f"ClientRequest({self.api.__name__} v{self.version}, node {self.node_id}, correlation id {self.correlation_id})"


@cython.final
cdef class ClientResponse:
    """What became of a request.

    Attributes:
        request: The request.
        response: Decoded message, None without one (acks=0, or a failure).
        disconnected: The connection ended before the answer.
        timed_out: It ended because this request, or one beside it, took too long.
        error: Why there is no response, or None.
        version: Version of the exchange, -1 when it never got that far.
        latency_ms: From send to answer.
    """

    cdef public ClientRequest request
    cdef public object response
    cdef public bint disconnected
    cdef public bint timed_out
    cdef public object error
    cdef public int version
    cdef public int64_t latency_ms

    def __cinit__(self, ClientRequest request not None, response=None, *, bint disconnected=False, bint timed_out=False, error=None,
                  int64_t latency_ms=0):
        self.request = request
        self.response = response
        self.disconnected = disconnected
        self.timed_out = timed_out
        self.error = error
        self.version = request.version
        self.latency_ms = latency_ms

    def __repr__(self):
        return f"ClientResponse({self.request!r}, error={self.error!r})"


@cython.final
cdef class CorrelationIds:
    """Request numbers of one client: 0, 1, ... 2^31-1, then 0 again."""

    cdef int64_t following

    def __cinit__(self, int64_t first=0):
        self.following = first

    cpdef int32_t next(self):
        """Returns the next id."""
        cdef int64_t value = self.following
        self.following = (value + 1) & 0x7FFFFFFF
        return <int32_t> value


cdef class VersionsCore:
    """What NodeApiVersions.negotiate found before: {(api key, min, max): version}."""

    cdef public dict _chosen


@cython.final
cdef class InFlightRequests:
    """Requests sent or being sent, per node, oldest first.

    `deadline_ms` is a lower bound of every request's deadline, so that a loop needs one comparison per turn and looks at the queues only
    when it passes.

    Args:
        max_per_connection: max.in.flight.requests.per.connection.
    """

    cdef public Py_ssize_t max_per_connection
    cdef public Py_ssize_t count
    cdef public int64_t deadline_ms
    cdef dict queues                          # node -> deque of ClientRequest

    def __cinit__(self, Py_ssize_t max_per_connection):
        self.max_per_connection = max_per_connection
        self.deadline_ms = LOOKING
        self.queues = {}

    cpdef add(self, ClientRequest request):
        """Appends a request whose `deadline_ms` is set."""
        queue = self.queues.get(request.node_id)
        if queue is None:
            queue = self.queues[request.node_id] = _request_deque()
        queue.append(request)
        self.count += 1
        if request.deadline_ms < self.deadline_ms:
            self.deadline_ms = request.deadline_ms

    cpdef bint can_send_more(self, node_id):
        """True when nothing is in flight, or the last send is fully written and the count is below the maximum."""
        cdef NetworkSend send
        queue = self.queues.get(node_id)
        if queue is None or not len(queue):
            return True
        send = (<ClientRequest> queue[len(queue) - 1]).send
        return len(queue) < self.max_per_connection and (send is None or send.completed)

    cpdef ClientRequest last_sent(self, node_id):
        """Returns the newest request of a node."""
        queue = self.queues.get(node_id)
        return <ClientRequest> queue[len(queue) - 1] if queue else None

    cpdef ClientRequest oldest(self, node_id):
        """Returns the request that the node's next response belongs to."""
        queue = self.queues.get(node_id)
        return <ClientRequest> queue[0] if queue else None

    cdef int gone(self, Py_ssize_t requests) except -1:
        self.count -= requests
        if not self.count:
            self.deadline_ms = LOOKING
        return 0

    cpdef ClientRequest complete_next(self, node_id):
        """Removes and returns the oldest request of a node."""
        cdef ClientRequest request = self.queues[node_id].popleft()
        self.gone(1)
        return request

    cpdef ClientRequest complete_last_sent(self, node_id):
        """Removes and returns the newest request of a node (one that expects no response)."""
        cdef ClientRequest request = self.queues[node_id].pop()
        self.gone(1)
        return request

    def complete_send(self, NetworkSend send not None):
        """Removes and returns the request whose frame is `send`, wherever it is in its queue."""
        cdef ClientRequest request
        queue = self.queues.get(send.destination)
        for request in queue or ():
            if request.send is send:
                queue.remove(request)
                self.gone(1)
                return request
        return None

    def clear_all(self, node_id):
        """Removes a node's requests and returns them, oldest first."""
        queue = self.queues.pop(node_id, None)
        if not queue:
            return ()
        self.gone(len(queue))
        return queue

    def node_count(self, node_id):
        """Returns how many requests of one node are in flight."""
        queue = self.queues.get(node_id)
        return len(queue) if queue else 0

    def add_throttle_time(self, node_id, int64_t throttle_ms):
        """Gives the requests behind a throttled response as much longer to be answered (KIP-219)."""
        cdef ClientRequest request
        for request in self.queues.get(node_id, ()):
            request.deadline_ms += throttle_ms

    def timed_out_nodes(self, int64_t now_ms):
        """Returns nodes that hold a request past its deadline, and makes `deadline_ms` exact again."""
        cdef ClientRequest request
        cdef int64_t earliest = LOOKING, first
        cdef list nodes = []
        for node_id, queue in self.queues.items():
            if not queue:
                continue
            first = LOOKING
            for request in queue:
                first = min(first, request.deadline_ms)
            if first <= now_ms:
                nodes.append(node_id)
            elif first < earliest:
                earliest = first
        self.deadline_ms = earliest
        return nodes


cdef class ConnectionCore:
    """What every request looks at in a NodeConnection."""

    cdef public int state
    cdef public int64_t throttled_until_ms
    cdef public VersionsCore versions

    def __cinit__(self, *args, **kwargs):
        pass


cdef class ClientCore:
    """The compiled half of NetworkClient."""

    cdef public SelectorCore selector
    cdef public object metadata
    cdef public InFlightRequests in_flight
    cdef public str _client_id
    cdef public CorrelationIds _correlation
    cdef public dict _connections
    cdef public dict node_stats               # node -> NodeStats
    cdef public dict _needs_versions
    cdef public int64_t _setup_deadline_ms
    cdef public list _aborted
    cdef public object _found_out             # deque: helper threads put in what is to be called with the time (addresses, tokens)
    cdef public object _metadata_request
    cdef public bint _active

    cpdef NodeStats stats_of(self, node_id):
        """What goes to and comes from a node."""
        stats = self.node_stats.get(node_id)
        if stats is None:
            stats = self.node_stats[node_id] = NodeStats()
        return <NodeStats> stats

    cpdef bint _can_send(self, node_id, int64_t now_ms):
        cdef ConnectionCore connection = self._connections.get(node_id)
        cdef ChannelCore channel
        if connection is None or connection.state != CONNECTION_READY or connection.throttled_until_ms > now_ms:
            return False
        channel = self.selector.channels.get(node_id)
        return channel is not None and channel.state is CHANNEL_IS_READY and self.in_flight.can_send_more(node_id)

    def is_ready(self, node, int64_t now_ms):
        """True when a request can be sent to the node now. A due metadata refresh goes first: then no node is ready."""
        return not self._is_update_due(now_ms) and self._can_send(node.id, now_ms)

    cpdef bint _is_update_due(self, int64_t now_ms):
        return self._metadata_request is None and self.metadata.next_update_ms <= now_ms

    def ready(self, node, int64_t now_ms):
        """Starts to connect if needed; returns whether the node is ready now."""
        node_id = node.id
        if not self._is_update_due(now_ms) and self._can_send(node_id, now_ms):
            return True
        connection = self._connections.get(node_id)
        if connection is None or connection.can_connect(now_ms):
            self._initiate_connect(node, now_ms)
        return False

    def send(self, ClientRequest request not None, int64_t now_ms):
        """Sends a request to a node that `is_ready`; the next polls bring its response.

        When the broker speaks no fitting version, the next poll answers with `error` set and nothing is sent.

        Raises:
            IllegalStateError: The node is not ready for a request.
            DisconnectError: The client is being closed.
        """
        if not self._active:
            raise DisconnectError("the network client is closing and sends nothing more")
        if not self._can_send(request.node_id, now_ms):
            raise IllegalStateError(f"node {request.node_id} is not ready for a request")
        versions = (<ConnectionCore> self._connections[request.node_id]).versions
        if versions is None:
            raise IllegalStateError(f"node {request.node_id} has not said which versions it speaks")
        api = request.api
        try:
            version = versions._chosen.get((api.API_KEY, request.min_version, request.max_version))
            if version is None:
                version = versions.negotiate(api.API_KEY, request.min_version, request.max_version, api.__name__)
            message = request.build(version)
        except UnsupportedVersion as error:
            self._aborted.append(ClientResponse(request, error=error))
            return
        self._do_send(request, message, version, now_ms)

    cpdef _do_send(self, ClientRequest request, message, int version, int64_t now_ms):
        cdef NetworkSend send
        request.version = version
        request.correlation_id = self._correlation.next()
        buffers = walk_encode_message(plan_for(message, version), message, FRAME_REQUEST, request.correlation_id, self._client_id)
        request.send = send = NetworkSend(request.node_id, buffers, not request.expect_response)
        request.sent_ms = now_ms
        request.deadline_ms = now_ms + request.timeout_ms
        self.in_flight.add(request)
        self.stats_of(request.node_id).sent_bytes.put(send.size_bytes, now_ms)
        self.selector.send(send)

    def poll(self, int64_t timeout_ms, int64_t now_ms):
        """Does the I/O that is possible, waiting for it if there is none.

        Args:
            timeout_ms: Longest wait; it is cut short by whatever falls due.
            now_ms: Time.

        Returns:
            Responses of this poll, after their callbacks ran.
        """
        cdef list responses = []
        cdef SelectorCore selector = self.selector
        cdef int64_t deadline_ms, due_ms
        if self._aborted:
            # They must not wait for I/O; but where each call brings one, this poll may be the only one that sees what the peers do.
            responses, self._aborted = self._aborted, responses
            timeout_ms = 0
        due_ms = LOOKING                       # with a refresh under way: its own deadline watches it
        if self._metadata_request is None:
            due_ms = self.metadata.next_update_ms
            if due_ms <= now_ms:
                due_ms = self._maybe_update(now_ms)
        deadline_ms = min(due_ms, self.in_flight.deadline_ms, self._setup_deadline_ms)
        timeout_ms = max(0, min(timeout_ms, deadline_ms - now_ms))
        selector.poll(timeout_ms, now_ms)
        now_ms = selector.now_ms
        if self._found_out:
            self._handle_found_out(now_ms)
        if selector.completed_sends:
            self._handle_completed_sends(responses, now_ms)
        if selector.completed_receives:
            self._handle_completed_receives(responses, now_ms)
        if selector.disconnected:
            self._handle_disconnections(responses, now_ms)
        if selector.connected:
            self._handle_connections()
        if self._needs_versions:
            self._handle_initiate_api_version_requests(now_ms)
        if now_ms >= self._setup_deadline_ms:
            self._handle_timed_out_connections(responses, now_ms)
        if now_ms >= self.in_flight.deadline_ms:
            self._handle_timed_out_requests(responses, now_ms)
        if responses:
            self._complete(responses)
        return responses

    def _complete(self, list responses not None):
        """Runs the callbacks. One that raises does not keep the others from running; its error is raised after them."""
        cdef ClientResponse response
        failure = None
        for response in responses:
            callback = response.request.callback
            if callback is not None:
                try:
                    callback(response)
                except Exception as error:
                    if failure is None:
                        failure = error
                    else:
                        failure.add_note(f"another callback of the same poll failed: {error!r}")
        if failure is not None:
            raise failure

    def _handle_completed_receives(self, list responses not None, int64_t now_ms):
        cdef NetworkReceive receive
        cdef ClientRequest request
        cdef NodeStats stats
        for receive in self.selector.completed_receives:
            node_id = receive.source
            request = self.in_flight.oldest(node_id)
            if request is None or not request.expect_response:
                text = f"{self._name(node_id)} sent {len(receive.payload)} bytes that answer no request"
                self._fail(node_id, CorruptDataError(text), responses, now_ms)
                continue
            try:
                response = client_decode(request, receive.payload)
            except CorruptDataError as error:
                self._fail(node_id, error, responses, now_ms)
                continue
            self.in_flight.complete_next(request.node_id)
            throttle_ms = getattr(response, "throttle_time_ms", 0)
            stats = self.stats_of(node_id)
            stats.received_bytes.put(len(receive.payload) + 4, now_ms)
            stats.latency_ms.put(now_ms - request.sent_ms, now_ms)
            stats.throttle_ms.put(throttle_ms, now_ms)
            if throttle_ms > 0:
                self._throttle(request, throttle_ms, now_ms)
            if request.kind is USER_REQUEST:
                responses.append(ClientResponse(request, response, latency_ms=now_ms - request.sent_ms))
            elif request.kind is METADATA_REQUEST:
                self._metadata_request = None
                self.metadata.update(response, now_ms)
            else:
                self._handle_api_versions(request, response, responses, now_ms)


cdef client_decode(ClientRequest request, payload):
    """Decodes a response after checking that it belongs to the request; CorruptDataError when it does not, or does not decode."""
    cdef Py_buffer view
    cdef Py_ssize_t start = 4, n
    cdef int32_t correlation_id = -1
    cdef int version = request.version, code = 0
    cdef Plan plan
    api = request.api
    kind = api.RESPONSE
    plan = kind._PLANS.get(version)
    if plan is None:
        plan = kind.plan(version)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    n = view.len
    if n >= 4:
        correlation_id = kc_get32(<const uint8_t*> view.buf)
    if n >= 6:
        code = <uint8_t> (<const uint8_t*> view.buf)[4] << 8 | <uint8_t> (<const uint8_t*> view.buf)[5]
    PyBuffer_Release(&view)
    if n < 4:
        raise CorruptDataError(f"a response of {n} bytes to {api.__name__} v{version} has no correlation id")
    if correlation_id != request.correlation_id:
        raise CorruptDataError(
            f"correlation id {correlation_id} does not match {request.correlation_id} of the oldest request in flight"
            f" ({api.__name__} v{version}, node {request.node_id}); requests and responses are out of step"
        )
    if plan.response_header_flexible:
        start = skip_tagged_fields(payload, 4)
    if plan.api_key == API_VERSIONS_KEY and code == UNSUPPORTED_VERSION_CODE:
        # KIP-511: a broker that does not know the version answers in the one every client can read
        plan = kind.plan(0)
    if request.kind is METADATA_REQUEST:
        return plan.walk(payload, start, True, PLAN_ANY_ELEMENTS, PARTITION_STRUCT)[0]
    return plan.walk(payload, start, True, PLAN_ANY_ELEMENTS, NULL if request.left is None else <PlanType*><PyObject*>request.left)[0]
