# SPDX-License-Identifier: Apache-2.0
"""The uvicorn server under test: an ASGI application that streams and delays.

What an application cannot delay is delayed in the sockets that asyncio uses: the
listening socket sleeps before accept, a connection's socket sleeps before recv,
both on the event loop's thread, as a loop that is busy does. Impossible here: a
hand-over (asyncio reads in the thread that the kernel woke) and time inside a
blocked write (asyncio's sockets do not block; what does not fit stays in the
transport). It prints {"port":N,"pid":N}, takes commands on standard input, one a
line, each answered by "ok" ("accept NS", "reader NS"), and ends with it.
"""

import argparse
import asyncio
import json
import os
import select
import selectors
import socket
import sys
import threading
import time

import uvicorn

now = time.monotonic_ns
delays = {"accept": 0, "reader": 0}
connections = {}  # the client's port: its Connection
log = None
DONE = b"data: [DONE]\n\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
OPEN, CLOSE = b'data: {"choices":[{"index":0,"delta":{"content":"', b'"}}]}\n\n'


def measured_sleep(ns):
    start = now()
    time.sleep(ns / 1e9)
    return now() - start


def readable(fd):
    p = select.poll()
    p.register(fd, select.POLLIN | select.POLLRDHUP)
    events = p.poll(0)
    return events[0][1] if events else 0


class Selector(selectors.EpollSelector):
    """Measures how long the loop's thread waited for its CPU across each wait."""

    delay = 0

    def __init__(self):
        super().__init__()
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def _run_delay(self):
        return int(os.pread(self._schedstat, 96, 0).split()[1])

    def select(self, timeout=None):
        before = self._run_delay()
        events = super().select(timeout)
        Selector.delay = self._run_delay() - before
        return events

    def close(self):
        os.close(self._schedstat)
        super().close()


class Listener(socket.socket):
    """Lets a connection wait in the accept queue as long as told."""

    def accept(self):
        waited = 0
        if delays["accept"] and readable(self.fileno()) & select.POLLIN:
            waited = measured_sleep(delays["accept"])
        fd, addr = self._accept()
        conn = Connection(self.family, self.type, self.proto, fileno=fd)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conn.start(addr[1], waited)
        return conn, addr


class Connection(socket.socket):
    """Sleeps before reads as told, and stamps reads and writes."""

    def start(self, port, waited):
        self.port, self.waited, self.accepted = port, waited, now()
        self.ordinal = self.reads = self.slept = self.wake = 0
        self.writes, self.sent = [], 0
        connections[port] = self

    def recv(self, size, flags=0):
        slept = 0
        if delays["reader"] and not readable(self.fileno()) & select.POLLRDHUP:
            slept = measured_sleep(delays["reader"])
        data = super().recv(size, flags)
        if data:
            self.reads += 1
            self.slept, self.wake = slept, Selector.delay
        return data

    def send(self, data, flags=0):
        before = now()
        n = super().send(data, flags)
        after = now()
        if len(self.writes) < 64:
            self.writes.append({"before": before, "after": after, "bytes": n, "what": what(data)})
        return n

    def close(self):
        if connections.get(getattr(self, "port", None)) is self:
            del connections[self.port]
        super().close()


def what(data):
    start = bytes(data[:256])
    if start.startswith(b"HTTP/1.1 1"):
        return "interim"
    if start.startswith(b"HTTP/1.1"):
        return "headers"
    if start.startswith(b"0\r\n\r\n"):
        return "end"
    if b"[DONE]" in start:
        return "done"
    return "role" if b'"role"' in start else "content"


def duration(text):
    for unit, ns in (("ns", 1), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)):
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * ns)
    return 0


def parse_case(text):
    plan = {"engine": 0, "gap": 0, "gaps": [], "sizes": [], "chunks": 0}
    for word in text.replace(" ", ";").split(";"):
        key, _, value = word.partition("=")
        if key in ("engine", "gap"):
            plan[key] = duration(value)
        elif key == "gaps":
            plan[key] = [duration(v) for v in value.split(",")]
        elif key == "sizes":
            plan[key] = [int(v) for v in value.split(",")]
        elif key == "chunks":
            plan[key] = int(value)
        elif key in ("early", "role"):
            plan[key] = True
    plan["chunks"] = plan["chunks"] or max(1, len(plan["gaps"]) + 1, len(plan["sizes"]))
    return plan


class App:
    def __init__(self, answer):
        self.answer = answer.encode()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        conn = connections[scope["client"][1]]
        while (await receive()).get("more_body"):
            pass
        text = dict(scope["headers"]).get(b"x-case", b"").decode()
        conn.ordinal += 1
        entry = {
            "remote_port": conn.port,
            "ordinal": conn.ordinal,
            "case": text,
            "reads": conn.reads,
            "accepted": conn.accepted,
            "read_at": now(),
            "injected": {"accept_wait": conn.waited, "reader": conn.slept, "wake_to_run": conn.wake},
        }
        conn.waited = conn.reads = 0
        try:
            await self.respond(send, parse_case(text), entry)
        finally:
            entry["injected"] = {k: v for k, v in entry["injected"].items() if v}
            entry["writes"], conn.writes = conn.writes, []
            os.write(log, json.dumps(entry).encode() + b"\n")

    async def respond(self, send, plan, entry):
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
        head = {"type": "http.response.start", "status": 200, "headers": headers}

        async def body(data, more=True):
            await send({"type": "http.response.body", "body": data, "more_body": more})

        if plan.get("early"):
            await send(head)
        if plan["engine"]:
            start = now()
            await asyncio.sleep(plan["engine"] / 1e9)
            entry["injected"]["engine"] = now() - start
        if not plan.get("early"):
            await send(head)
        if plan.get("role"):
            await body(ROLE)
        for i in range(plan["chunks"]):
            gap = plan["gaps"][i - 1] if 0 < i <= len(plan["gaps"]) else plan["gap"]
            if i and gap:
                await asyncio.sleep(gap / 1e9)
            size = plan["sizes"][i] if i < len(plan["sizes"]) else 0
            pad = size - len(OPEN) - len(self.answer) - len(CLOSE)
            await body(OPEN + self.answer + b"x" * pad + CLOSE)
        await body(DONE, more=False)


def listen(args):
    family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
    s = Listener(family, socket.SOCK_STREAM, 262 if args.mptcp else 0)  # IPPROTO_MPTCP
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    if args.sndbuf:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, args.sndbuf)
    s.bind((args.host, 0))
    s.listen(args.backlog)  # before the port is told; asyncio listens once more
    return s


def obey():
    for line in sys.stdin:
        word, _, value = line.strip().partition(" ")
        if word in delays and value.isdigit():
            delays[word] = int(value)
            print("ok", flush=True)
        else:
            print("not understood", flush=True)
    os._exit(0)


async def serve(args):
    config = uvicorn.Config(
        App(args.answer),
        http="h11",
        loop="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=300,
        backlog=args.backlog,
    )
    sock = listen(args)
    print(json.dumps({"port": sock.getsockname()[1], "pid": os.getpid()}), flush=True)
    threading.Thread(target=obey, daemon=True).start()
    await uvicorn.Server(config).serve(sockets=[sock])


def main():
    global log
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--cpu", type=int, default=-1)
    flags.add_argument("--log", required=True)
    flags.add_argument("--mptcp", action="store_true")
    flags.add_argument("--sndbuf", type=int, default=0)
    flags.add_argument("--answer", default="token")
    flags.add_argument("--backlog", type=int, default=4096)
    args = flags.parse_args()
    if args.cpu >= 0:
        os.sched_setaffinity(0, {args.cpu})
    log = os.open(args.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Selector())) as runner:
        runner.run(serve(args))


if __name__ == "__main__":
    main()
