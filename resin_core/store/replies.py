"""The call ledger on the index's own filesystem: every reply of the model stands there before it is used.

One small file a call, in a folder of its document, so that a deletion finds what was derived from it.
"""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import ValidationError

from resin_core.llm.protocol import Reply
from resin_core.store.filesystem import IndexFolder
from resin_core.store.work_paths import replies_of

_THREADS = 32  # of waiting for a remote filesystem, not of computing


class ReplyFolder:
    """Replies kept under `results`, the key of prompts and settings. Picklable."""

    def __init__(self, folder: IndexFolder, results: str) -> None:
        self._folder, self._results = folder, results
        self._pool: ThreadPoolExecutor | None = None

    def of(self, doc_id: str) -> DocumentReplies:
        """The replies of one document."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="replies")
        return DocumentReplies(self._folder, replies_of(self._results, doc_id), self._pool)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}


class DocumentReplies:
    """Implements ReplyStore. A file that is missing, cut off or altered is no reply: the call is made again."""

    def __init__(self, folder: IndexFolder, path: str, pool: ThreadPoolExecutor) -> None:
        self._folder, self._path, self._pool = folder, path, pool

    async def get(self, key: str) -> Reply | None:
        """The reply kept under a key."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, key)

    async def put(self, key: str, reply: Reply) -> None:
        """Keeps a reply. Raises StoreError."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._write, key, reply)

    def all(self) -> dict[str, Reply]:
        """Every reply of the document by key."""
        names = self._folder.names(self._path)
        found = {name.removesuffix(".json"): self._read(name.removesuffix(".json")) for name in names}
        return {key: reply for key, reply in found.items() if reply is not None}

    def _read(self, key: str) -> Reply | None:
        try:
            content = self._folder.read(self._file(key))
        except OSError:
            return None
        sha, _, body = content.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != sha:
            return None
        try:
            return Reply.model_validate_json(body)
        except ValidationError:
            return None

    def _write(self, key: str, reply: Reply) -> None:
        body = reply.model_dump_json().encode()
        content = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        self._folder.put(self._file(key), lambda stream: stream.write(content))

    def _file(self, key: str) -> str:
        return f"{self._path}/{key}.json"
