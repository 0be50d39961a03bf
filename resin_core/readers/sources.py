"""Which files a list of sources means: files and folders, in a fixed order, nothing passed over in silence."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from resin_core.errors import SourceError
from resin_core.readers.rejects import make_reject
from resin_core.records import Record, Reject
from resin_core.text.decode import scrub


class SourceKind(StrEnum):
    """How a file is read."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    PDF = "pdf"
    DOCX = "docx"
    JSONL = "jsonl"
    PARQUET = "parquet"


KINDS: Final = {
    ".txt": SourceKind.TEXT,
    ".text": SourceKind.TEXT,
    ".md": SourceKind.MARKDOWN,
    ".markdown": SourceKind.MARKDOWN,
    ".html": SourceKind.HTML,
    ".htm": SourceKind.HTML,
    ".pdf": SourceKind.PDF,
    ".docx": SourceKind.DOCX,
    ".jsonl": SourceKind.JSONL,
    ".ndjson": SourceKind.JSONL,
    ".parquet": SourceKind.PARQUET,
}
_KNOWN: Final = " ".join(sorted(KINDS))
MAX_DOC_ID_CHARS: Final = 1024


class SourceFile(Record):
    """One file to read. `doc_id` is its path below the folder it was found in, or its name when named itself."""

    path: str
    kind: SourceKind
    doc_id: str
    size_bytes: int


def list_sources(sources: Sequence[str]) -> Iterator[SourceFile | Reject]:
    """The files behind `sources`: a named file, or all files below a folder sorted by path, hidden ones left out.

    Raises SourceError at once, before anything is listed, for a source that does not exist, is neither file nor
    folder, or is a file of unknown type. Inside a folder such things become Reject rows (stage "read", reasons
    "unreadable" and "unsupported-type"), and so does a link to a folder ("linked-folder"), which is not followed:
    links could lead round in a circle or out of what was meant to be indexed.
    """
    named = list(dict.fromkeys(sources))
    roots: list[SourceFile | Path] = [_check(source) for source in named]
    return _walk_all(roots)


def _check(source: str) -> SourceFile | Path:
    if not source:
        raise SourceError("a source is the empty string; name a file or a folder")
    path = Path(source)
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise SourceError(f"source {source!r} does not exist; check the path") from error
        raise SourceError(f"source {source!r} cannot be read: {_why(error)}") from error
    if stat.S_ISDIR(status.st_mode):
        return path
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"source {source!r} is neither a file nor a folder; name a regular file")
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise SourceError(f"source {source!r} has an unknown type {path.suffix!r}; known are {_KNOWN}")
    if scrub(source) != source:
        raise SourceError(f"source {scrub(source)!r} has a name that is not valid Unicode; rename it")
    return SourceFile(path=source, kind=kind, doc_id=path.name, size_bytes=status.st_size)


def _walk_all(roots: Sequence[SourceFile | Path]) -> Iterator[SourceFile | Reject]:
    for root in roots:
        if isinstance(root, SourceFile):
            yield root
        else:
            yield from _walk(root)


def _walk(root: Path) -> Iterator[SourceFile | Reject]:
    """Depth first with a stack of its own, so that no depth of folders is too deep."""
    stack: list[tuple[Path, str]] = [(root, "")]
    while stack:
        path, name = stack.pop()
        try:
            # The root itself may be a link; below it none to a folder is followed.
            if not name or (path.is_dir() and not path.is_symlink()):
                children = sorted(child for child in os.listdir(path) if not child.startswith("."))  # noqa: PTH208
                stack.extend((path / child, f"{name}/{child}" if name else child) for child in reversed(children))
                continue
            yield _entry(path, name)
        except OSError as error:
            yield make_reject(name or path.name, str(path), "unreadable", _why(error))


def _entry(path: Path, name: str) -> SourceFile | Reject:
    """A file below a folder, or why it is none. Raises OSError."""
    uri = str(path)
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        return make_reject(name, uri, "linked-folder", "links to folders are not followed; name the folder as a source")
    if not stat.S_ISREG(status.st_mode):
        return make_reject(name, uri, "unreadable", "not a regular file")
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        return make_reject(name, uri, "unsupported-type", f"unknown type {path.suffix!r}; known are {_KNOWN}")
    if scrub(uri) != uri:
        return make_reject(name, uri, "unreadable", "the file's name is not valid Unicode; rename it")
    if len(name) > MAX_DOC_ID_CHARS:
        return make_reject(name, uri, "id-too-long", f"the path has {len(name)} characters; at most {MAX_DOC_ID_CHARS}")
    return SourceFile(path=uri, kind=kind, doc_id=name, size_bytes=status.st_size)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno == errno.ELOOP:
            return "a symbolic link that leads back to itself"
        return os.strerror(error.errno)
    return scrub(str(error)) or type(error).__name__
