"""The line between a broker's process and the one that started it: what a test asks of the broker, and the broker of a test.

    parent  CALL {number, name, arguments} ----------------> the broker's thread does it
            <-------------------------------- RESULT {number, result or error}
    child   ASK api key, version, the request's bytes ----> the function that `control` was given runs in the parent
            <---------------------------- nothing, a fault, or a response's bytes ANSWER

A frame is its length, a letter, and its content. Both ends are of the same release on the same machine, so nothing is negotiated. The
child's broker waits for the answer to what it asks, as a broker waits for a function in its own thread; the thread that reads the line
never waits, so a function may be taken away while another one runs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kafkacore.broker.faults import Control, Delay, Disconnect, Drop, Fault
from kafkacore.errors import BrokerNotAvailable, KafkaError, KafkaTimeoutError, UsageError, from_code
from kafkacore.protocol import APIS
from kafkacore.protocol.schema import Request, Response

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 30
_SIZE = struct.Struct(">i")
_API = struct.Struct(">hh")
_DELAY = struct.Struct(">q")
_CALL, _RESULT, _ASK, _ANSWER = b"C", b"R", b"Q", b"A"
_NORMAL, _RESPONSE, _DELAYED, _DROPPED, _DISCONNECTED, _FAILED = range(6)

Operation = Callable[..., Any]


class Line:
    """One end. A thread of its own reads it until the other end is gone."""

    def __init__(self, end: socket.socket, name: str) -> None:
        """Takes a socket and begins to read.

        Args:
            end: of the line.
            name: of the broker, for the thread.
        """
        self._socket = end
        self._name = name
        self._send_lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name=f"kafkacore-line-{name}", daemon=True)
        self._thread.start()

    def _send(self, kind: bytes, *parts: Any) -> None:
        size = 1 + sum(memoryview(part).nbytes for part in parts)
        with self._send_lock:
            self._socket.sendall(_SIZE.pack(size) + kind)
            for part in parts:
                self._socket.sendall(part)

    def _read(self) -> None:
        try:
            with contextlib.suppress(OSError), self._socket.makefile("rb") as stream:
                while len(head := stream.read(_SIZE.size)) == _SIZE.size:
                    (size,) = _SIZE.unpack(head)
                    frame = stream.read(size)
                    if len(frame) < size:
                        break
                    self._received(frame[:1], memoryview(frame)[1:])
        finally:
            self._over()

    def _received(self, kind: bytes, content: memoryview) -> None:
        raise NotImplementedError

    def _over(self) -> None:
        """The other end is closed."""

    def close(self) -> None:
        """Ends the line for both."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class ParentLine(Line):
    """The end of the process that started the broker."""

    def __init__(self, end: socket.socket, name: str, controls: Mapping[int, Control]) -> None:
        """Takes a socket and begins to answer.

        Args:
            end: of the line.
            name: of the broker.
            controls: the functions by API key; their owner may change them.
        """
        self._controls = controls
        self._results: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._call_lock = threading.Lock()
        self._number = 0
        super().__init__(end, name)

    def tell(self, name: str, *arguments: Any) -> int:
        """Has the broker's thread do something when it comes round to it; nothing happens if its process has ended.

        Args:
            name: of one of the operations the child offers.
            arguments: for it; JSON.

        Returns:
            The number of the call.
        """
        self._number += 1
        with contextlib.suppress(OSError):
            self._send(_CALL, json.dumps({"number": self._number, "name": name, "arguments": arguments}).encode())
        return self._number

    def call(self, name: str, *arguments: Any) -> Any:
        """Has the broker's thread do something.

        Args:
            name, arguments: as for `tell`.

        Returns:
            Its result.

        Raises:
            BrokerNotAvailable: its process has ended.
            KafkaTimeoutError: its thread does not come round to it.
            KafkaError: what the operation raised.
        """
        if threading.current_thread() is self._thread:
            raise UsageError(f"{name}: broker {self._name} waits for this very function and can do nothing else in the meantime")
        with self._call_lock:
            number = self.tell(name, *arguments)
            while True:
                try:
                    result = self._results.get(timeout=CALL_TIMEOUT_S)
                except queue.Empty:
                    raise KafkaTimeoutError(f"{name}: the process of broker {self._name} does not answer") from None
                if result is None:
                    self._results.put(None)
                    raise BrokerNotAvailable(f"{name}: the process of broker {self._name} has ended")
                if result["number"] == number:  # else it is of a call that had its answer, or was given up
                    break
        if "error" in result:
            code, message = result["error"]
            raise UsageError(message) if code is None else from_code(code, message)
        return result["result"]

    def _received(self, kind: bytes, content: memoryview) -> None:
        if kind == _RESULT:
            self._results.put(json.loads(bytes(content)))
            return
        api_key, version = _API.unpack_from(content)
        try:
            answer = self._answer(api_key, version, content[_API.size :])
        except Exception as error:
            logger.exception("broker %s: the control function of %s failed", self._name, APIS[api_key].name)
            answer = [bytes([_FAILED]), str(error).encode()]
        self._send(_ANSWER, *answer)

    def _answer(self, api_key: int, version: int, body: memoryview) -> list[Any]:
        fn = self._controls.get(api_key)
        answer: Any = None if fn is None else fn(APIS[api_key].request.decode(version, body))
        if isinstance(answer, type):
            answer = answer()
        if answer is None:
            return [bytes([_NORMAL])]
        if isinstance(answer, Delay):
            return [bytes([_DELAYED]), _DELAY.pack(answer.ms)]
        if isinstance(answer, Drop | Disconnect):
            return [bytes([_DROPPED if isinstance(answer, Drop) else _DISCONNECTED, answer.handle])]
        if isinstance(answer, Response):
            return [bytes([_RESPONSE]), *answer.encode(version)]
        raise UsageError(f"a control function returned {answer!r}; it may return a response, Delay, Drop, Disconnect or None")

    def _over(self) -> None:
        self._results.put(None)


class ChildLine(Line):
    """The end of the broker's process."""

    def __init__(
        self, end: socket.socket, name: str, operations: Mapping[str, Operation], post: Callable[[Callable[[], None]], None]
    ) -> None:
        """Takes a socket and begins to carry out calls.

        Args:
            end: of the line.
            name: of the broker.
            operations: what may be called, by name; each runs in the broker's thread.
            post: leaves a message for that thread.
        """
        self._operations = operations
        self._post = post
        self._answers: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        super().__init__(end, name)

    def ask(self, request: Request, version: int) -> Response | Fault | None:
        """What the parent's function says to a request; the broker's thread waits for it.

        Raises:
            UsageError: the function failed; the parent has logged why.
        """
        try:
            self._send(_ASK, _API.pack(request.API_KEY, version), *request.encode(version))
        except OSError:
            return None  # the parent is gone, and this process soon will be
        answer = self._answers.get()
        if answer is None:
            self._answers.put(None)
            return None
        kind, content = answer[0], answer[1:]
        if kind == _RESPONSE:
            return APIS[request.API_KEY].response.decode(version, content)
        if kind == _DELAYED:
            return Delay(*_DELAY.unpack(content))
        if kind in (_DROPPED, _DISCONNECTED):
            return (Drop if kind == _DROPPED else Disconnect)(bool(content[0]))
        if kind == _FAILED:
            raise UsageError(f"the control function failed in the parent process: {bytes(content).decode()}")
        return None

    def _received(self, kind: bytes, content: memoryview) -> None:
        if kind == _ANSWER:
            self._answers.put(content)
        else:
            called = json.loads(bytes(content))
            self._post(lambda: self._carry_out(called["number"], called["name"], called["arguments"]))

    def _carry_out(self, number: int, name: str, arguments: list[Any]) -> None:
        try:
            answer: dict[str, Any] = {"result": self._operations[name](*arguments)}
        except KafkaError as error:
            answer = {"error": [error.code, error.message]}
        except Exception as error:
            logger.exception("broker %s: %s failed", self._name, name)
            answer = {"error": [None, f"{name} failed: {error}"]}
        with contextlib.suppress(OSError):
            self._send(_RESULT, json.dumps({"number": number, **answer}).encode())

    def _over(self) -> None:
        self._answers.put(None)
