"""A TCP proxy that cuts uploads: what a client sees when its network breaks in the middle of one."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from urllib.parse import quote

_BLOCK_BYTES = 1 << 16


class CuttingProxy:
    """Forwards to a port of loopback, but drops the connection within each PUT of a path that holds `part`.

    `cuts` counts how often. Half of what came with the request's first bytes still reaches the server.
    """

    def __init__(self, port: int, part: str) -> None:
        self._target, self._part = port, quote(part).encode()
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> CuttingProxy:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(timeout=5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                thread = threading.Thread(target=self._pump, args=(source, sink, source is client), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(_BLOCK_BYTES):
                if from_client and block.startswith(b"PUT ") and self._part in block.partition(b"\r\n")[0]:
                    sink.sendall(block[: len(block) // 2])
                    self.cuts += 1
                    break
                sink.sendall(block)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
