# SPDX-License-Identifier: Apache-2.0
"""Runs llama.cpp's own HTTP server from its wheel until it is told to stop.

Usage: llama.py MODEL_GGUF MODEL_NAME PORT SLOTS

PORT 0 lets the system choose. Binds to 127.0.0.1 only, prints the address it
listens on as the first line of its standard output, and ends on SIGTERM or SIGINT.
"""

import os
import signal
import sys
import threading

import xllamacpp


def parameters(model, name, port, slots):
    p = xllamacpp.CommonParams()
    p.model.path = model
    p.model_alias = {name}
    p.hostnames = ["127.0.0.1"]
    p.port = port
    p.n_parallel = slots
    p.n_ctx = 512 * slots
    p.endpoint_metrics = True
    p.cpuparams.n_threads = 1
    p.n_threads_http = slots + 8
    return p


def main():
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    model, name, port, slots = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    server = xllamacpp.Server(parameters(model, name, port, slots))
    print(server.listening_address, flush=True)
    while not stop.wait(0.2):
        pass
    os._exit(0)  # the server's own threads do not end while a client is connected


if __name__ == "__main__":
    main()
