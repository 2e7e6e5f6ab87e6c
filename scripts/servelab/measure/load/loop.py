"""The event loop of one load process: sends each request at its time and keeps what arrives, and when.

A bare `epoll` loop over non-blocking sockets. `recvmsg` reads a piece with the kernel's stamp of its arrival, so that
times are right even if the piece waited to be read. Per piece the loop keeps the body's bytes, the stamp and the
time of the read; everything else is done after the round.
"""

from __future__ import annotations

import errno
import heapq
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from servelab.engines.endpoint import trusted
from servelab.measure.load import LoadPlan
from servelab.measure.load.board import Board, ClockDifference, RequestQueue, clock
from servelab.measure.load.connections import NO_STAMP, STAMP_BYTES, Exchange, TlsSocket, open_socket, resolve
from servelab.measure.load.records import read_answer
from servelab.measure.load.requests import ConversationTurns, LoadRequests

_LEAST = "least_in_flight"
_READ_BYTES = 1 << 16
_TICK_S = 0.1
_STARTS_PER_TURN = 32
"""Requests sent before the loop reads again."""
_LINGER_S = 0.1
"""Time for the server to close an answered connection, as it was asked to: then its port is free at once."""
_FINE_S = 0.002
"""`epoll` counts in milliseconds; shorter waits use `select`, which counts in microseconds."""
_NAP_S = 0.0005
"""Pieces gather for so long before they are read together, where nothing waits for them: the kernel stamps each on
arrival. Waking up for each piece took a third of the client's CPU time in bursts."""


class Loop:
    """Sends the requests of a queue, at most `slots` of them in flight."""

    def __init__(
        self,
        plan: LoadPlan,
        requests: LoadRequests,
        queue: RequestQueue,
        slots: int | None,
        board: Board,
        process: int = 0,
        on_tick: Callable[[], None] = lambda: None,
        parent: int | None = None,
    ) -> None:
        self._plan, self._requests, self._queue, self._board, self._process = plan, requests, queue, board, process
        self._slots = slots if slots is not None else len(requests) + 1
        self._naps = slots is None and requests.conversations is None
        """Whether no request waits for the end of another, so that an answer may be read a little later."""
        self._on_tick = on_tick
        self._parent = parent
        """A descriptor that becomes readable when the parent process has gone."""
        self.exchanges: list[Exchange] = []
        """Every request that was started, in the order of the starts."""
        self.difference = ClockDifference()
        self.cpu_s = 0.0
        self._epoll = select.epoll()
        self._open: dict[int, Exchange] = {}
        self._unfinished: deque[Exchange] = deque()
        self._lingering: deque[tuple[float, socket.socket | TlsSocket]] = deque()
        self._in_flight = self._done = self._failed = 0
        self._address = [0 for _ in plan.addresses]
        """Index of each server's address that was reached last."""
        self._turn_of = process
        """Number of the server whose turn is next, not reduced by their count."""
        self._next: int | None = None
        self._turns: list[tuple[float, int]] = []
        """Later turns of conversations that are not sent yet: a heap of when each is due, and which it is."""
        self._wake = self._tick_at = 0.0
        self._trusted = trusted(plan.base_url, plan.insecure)
        self._unresolved: str | None = None
        try:
            self._addresses = resolve(plan)
        except OSError as error:
            self._addresses, self._unresolved = [], f"connect_failed: {error}"

    def run(self, origin: float) -> None:
        """Sends the load, with `origin` on `clock` as its time 0; returns when no request is in flight."""
        self._origin = origin
        self._deadline = origin + self._plan.timeout_s
        self._send_until = origin + (self._plan.duration_s or float("inf"))
        if self._parent is not None:
            self._epoll.register(self._parent, select.EPOLLIN)
        cpu_before = time.process_time()
        try:
            self._run()
        finally:
            self.cpu_s = time.process_time() - cpu_before
            for exchange in self._open.values():
                if exchange.sock is not None:
                    exchange.sock.close()
            for _, sock in self._lingering:
                sock.close()
            self._epoll.close()
            self.difference.measure()

    def _run(self) -> None:
        exchanges, readable = self._open, select.EPOLLIN
        room = memoryview(bytearray(_READ_BYTES))
        buffers = [room]
        while self._wake != float("inf"):
            now = clock()
            if now >= self._wake:
                self._turn(now)
            for descriptor, events in self._wait(self._wake - clock()):
                exchange = exchanges.get(descriptor)
                if exchange is None:
                    if descriptor == self._parent:
                        os._exit(1)
                    continue  # ended by another event of this batch
                if events != readable and not self._is_readable(exchange, events):
                    continue
                try:
                    size, stamp, _, _ = exchange.receive(buffers, STAMP_BYTES)
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._closed(exchange, error)
                    continue
                if not size:
                    self._closed(exchange, None)
                    continue
                now = clock()
                exchange.read_at.append(now)
                exchange.stamps += stamp[0][2] if stamp else NO_STAMP
                try:
                    if exchange.take(room[:size]):
                        self._end(exchange, None)
                    elif exchange.left < 0:
                        self._end(exchange, f"too_long: {len(exchange.ends):,} pieces, and no end")
                except ValueError as error:
                    self._end(exchange, f"broken_http: {error}")
                if now >= self._wake:  # a request that is due does not wait for the rest of a long batch
                    self._turn(now)

    def _wait(self, seconds: float) -> list[tuple[int, int]]:
        if self._naps and self._in_flight and seconds > _FINE_S:
            time.sleep(_NAP_S)
            seconds -= _NAP_S
        if seconds <= 0 or seconds == float("inf"):
            return self._epoll.poll(0)
        if seconds < _FINE_S:
            select.select([self._epoll.fileno()], [], [], seconds)
            return self._epoll.poll(0)
        return self._epoll.poll(int(min(seconds, 1.0) * 1000 - 1) / 1000)

    def _turn(self, now: float) -> None:
        """Does what is due and sets `_wake` to the next time: `inf` when all requests have been sent and have ended."""
        if now >= self._tick_at:
            self._tick(now)
        if now >= self._deadline:
            self._end_all(f"round_timeout: the round took longer than {self._plan.timeout_s:g} s")
            self._send_no_more()
        while self._unfinished:
            oldest = self._unfinished[0]
            if oldest.ended_at is None:
                if now < oldest.started_at + self._plan.request_timeout_s:
                    break
                self._end(oldest, f"request_timeout: unfinished after {self._plan.request_timeout_s:g} s")
            self._unfinished.popleft()
        due = self._send_due(now)
        if due == float("inf") and not self._in_flight:
            self._wake = due
            return
        self._wake = min(self._tick_at, due)
        if self._in_flight:
            self._wake = min(self._wake, self._deadline)
        if self._unfinished:
            self._wake = min(self._wake, self._unfinished[0].started_at + self._plan.request_timeout_s)

    def _tick(self, now: float) -> None:
        self._tick_at = now + _TICK_S
        self.difference.measure()
        while self._lingering and self._lingering[0][0] <= now:
            self._lingering.popleft()[1].close()
        if self._board.saturated:
            self._saturate()
        self._on_tick()

    def _publish(self) -> None:
        self._board.write(self._process, self._in_flight, self._done, self._failed)

    def _send_due(self, now: float) -> float:
        """Starts requests that are due, as long as slots are free; returns when the next one is due."""
        for _ in range(_STARTS_PER_TURN):
            if self._board.saturated:
                self._saturate()
            if now >= self._send_until:
                self._next = None
                self._turns.clear()
                return float("inf")
            if self._next is None:
                self._next = self._queue.take()
            turn_at = self._turns[0][0] if self._turns else float("inf")
            due_at = turn_at
            if self._next is not None:
                due_at = min(turn_at, self._origin + self._requests.scheduled_s[self._next])
            if due_at == float("inf"):
                return due_at
            if self._in_flight >= self._slots:
                return self._tick_at
            if due_at > now:
                return min(due_at, self._send_until)
            if turn_at <= now:  # who is in a conversation goes before who begins one
                self._start(heapq.heappop(self._turns)[1])
            else:
                assert self._next is not None
                index, self._next = self._next, None
                self._start(index)
        return now

    def _start(self, index: int) -> None:
        output_tokens = int(self._requests.output_tokens[index])
        exchange = Exchange(index, self._requests.messages[index], clock(), output_tokens)
        exchange.server = self._choose()
        exchange.address = self._address[exchange.server]
        self.exchanges.append(exchange)
        self._unfinished.append(exchange)
        self._in_flight += 1
        self._board.count(self._process, exchange.server, 1)
        self._publish()
        if self._unresolved is not None:
            self._end(exchange, self._unresolved)
        else:
            self._connect(exchange)
        limit = self._plan.saturation_in_flight
        if limit is not None and self._board.in_flight() >= limit:
            self._board.saturate()
            self._saturate()

    def _choose(self) -> int:
        """The server of the next request."""
        turn, count = self._turn_of, len(self._address)
        self._turn_of += 1
        servers = [(turn + step) % count for step in range(count)]
        return min(servers, key=self._board.in_flight_on) if self._plan.balancer == _LEAST else servers[0]

    def _connect(self, exchange: Exchange) -> None:
        family, address = self._addresses[exchange.server][exchange.address]
        try:
            sock = open_socket(family)
        except OSError as error:
            self._end(exchange, f"connect_failed: {error}")
            return
        if self._trusted is None:
            exchange.sock, exchange.receive = sock, sock.recvmsg_into
        else:
            exchange.sock = exchange.shaking = TlsSocket(sock, self._trusted, self._plan.addresses[0][0])
            exchange.receive = partial(self._shake, exchange)
        failure = sock.connect_ex(address)
        if failure not in (0, errno.EINPROGRESS):
            self._connect_failed(exchange, OSError(failure, os.strerror(failure)))
            return
        self._write(exchange)  # on loopback the connection is already established

    def _connect_failed(self, exchange: Exchange, failure: OSError) -> None:
        """Tries the server's next address, if it has one."""
        self._release(exchange)
        if exchange.address + 1 < len(self._addresses[exchange.server]):
            exchange.address += 1
            self._connect(exchange)
        else:
            self._end(exchange, f"connect_failed: {failure}")

    def _shake(self, exchange: Exchange, *_: object) -> None:
        """Reads an answer that is part of the TLS handshake, so that no piece of the answer has arrived."""
        self._write(exchange)
        raise BlockingIOError

    def _write(self, exchange: Exchange) -> None:
        """Sends what the socket accepts; the rest follows when it accepts more, and the answer is read meanwhile."""
        assert exchange.sock is not None and exchange.unsent is not None
        try:
            if exchange.shaking is not None:
                if events := exchange.shaking.handshake():
                    self._watch(exchange, events)
                    return
                exchange.receive, exchange.shaking = exchange.shaking.recvmsg_into, None
            at = clock()
            exchange.unsent = exchange.unsent[exchange.sock.send(exchange.unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            if exchange.sent_at is None:
                self._connect_failed(exchange, error)
                return
            exchange.unsent = None  # the server reads no more; its answer may say why
        else:
            exchange.sent_at = exchange.sent_at or at
            self._address[exchange.server] = exchange.address
        events = 0 if exchange.sent_at is None else select.EPOLLIN
        if exchange.unsent:
            events |= select.EPOLLOUT
        else:
            exchange.unsent = None
        self._watch(exchange, events)

    def _watch(self, exchange: Exchange, events: int) -> None:
        assert exchange.sock is not None
        descriptor = exchange.sock.fileno()
        if descriptor in self._open:
            self._epoll.modify(descriptor, events)
        else:
            self._open[descriptor] = exchange
            self._epoll.register(descriptor, events)

    def _is_readable(self, exchange: Exchange, events: int) -> bool:
        """Handles connecting and writing; whether there is also something to read."""
        assert exchange.sock is not None
        if exchange.sent_at is None and events & (select.EPOLLERR | select.EPOLLHUP):
            # 0: the event belongs to an earlier connection with the same descriptor.
            if failure := exchange.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._connect_failed(exchange, OSError(failure, os.strerror(failure)))
            return False
        if exchange.unsent is not None:
            self._write(exchange)
        return exchange.sent_at is not None and events != select.EPOLLOUT

    def _closed(self, exchange: Exchange, error: OSError | None) -> None:
        is_whole = error is None and exchange.ends_by_closing
        self._end(exchange, None if is_whole else f"closed_early: {error or 'the server closed the connection'}")

    def _end(self, exchange: Exchange, error: str | None) -> None:
        exchange.ended_at, exchange.error = clock(), error
        self._release(exchange)
        exchange.unsent = None
        exchange.close_parser()
        self._in_flight -= 1
        self._board.count(self._process, exchange.server, -1)
        self._done += 1
        self._failed += bool(error) or exchange.status != 200
        self._publish()
        if exchange.status == 200 and not error and self._requests.conversations is not None:
            self._answer(exchange, self._requests.conversations)
        self._wake = 0.0  # a slot is free

    def _answer(self, exchange: Exchange, conversations: ConversationTurns) -> None:
        """Makes the turn that follows an answer, and when it is due."""
        following = conversations.after(exchange.index, read_answer(bytes(exchange.body)).said)
        if following is None:
            return
        assert exchange.ended_at is not None
        position, think_s, message = following
        due_at = exchange.ended_at + think_s
        self._requests.messages[position] = message
        self._requests.scheduled_s[position] = due_at - self._origin
        heapq.heappush(self._turns, (due_at, position))

    def _release(self, exchange: Exchange) -> None:
        """Takes the connection out of the loop; an answered one is closed after `_LINGER_S`."""
        sock, exchange.sock = exchange.sock, None
        if sock is None:
            return
        if self._open.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock.fileno())
        if exchange.complete:
            self._lingering.append((clock() + _LINGER_S, sock))
        else:
            sock.close()

    def _saturate(self) -> None:
        self._send_no_more()
        self._end_all(f"saturated: {self._plan.saturation_in_flight} requests were in flight")

    def _send_no_more(self) -> None:
        self._queue.close()
        self._next = None
        self._turns.clear()

    def _end_all(self, error: str) -> None:
        for exchange in self._unfinished:
            if exchange.ended_at is None:
                self._end(exchange, error)
