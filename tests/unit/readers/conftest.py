from collections.abc import Callable
from pathlib import Path

import pytest

from resin_core.readers.read import read_source
from resin_core.readers.rejects import ReadDocument
from resin_core.readers.sources import SourceFile, list_sources
from resin_core.records import Document, Reject

Read = Callable[..., list[ReadDocument | Reject]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes bytes or text under a name and reads them; the results in order."""

    def run(name: str, content: bytes | str, max_bytes: int = 1_000_000) -> list[ReadDocument | Reject]:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        (file,) = list_sources([str(path)])
        assert isinstance(file, SourceFile)
        return list(read_source(file, max_bytes))

    return run


@pytest.fixture
def document(read: Read) -> Callable[..., Document]:
    def run(name: str, content: bytes | str, max_bytes: int = 1_000_000) -> Document:
        (found,) = read(name, content, max_bytes)
        assert isinstance(found, ReadDocument), found
        return found.document

    return run


@pytest.fixture
def reject(read: Read) -> Callable[..., Reject]:
    def run(name: str, content: bytes | str, max_bytes: int = 1_000_000) -> Reject:
        (found,) = read(name, content, max_bytes)
        assert isinstance(found, Reject), found
        assert found.stage == "read"
        return found

    return run
