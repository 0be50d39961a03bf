"""What one generation of an index consists of, and the pointer to the one that is served.

A generation's id is `g<number>-<first 12 hex of the sha256 of the manifest file>`, so an altered manifest no longer
fits its own name. Files are named by their content, so two equal runs share them and differ only in the manifest's
`number` and `created_at`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from resin_core.errors import IndexCorruptError, IndexFormatError, IndexMissingError, StoreError
from resin_core.records import Record
from resin_core.store.filesystem import IndexFolder

FORMAT_VERSION = 1
POINTER = "CURRENT"
_GENERATION = re.compile(r"g([0-9]{1,9})-[0-9a-f]{12}")


class FileEntry(Record):
    """One immutable file: `name` is its table, or `faiss`; `path` is relative to the index folder."""

    name: str
    path: Annotated[str, StringConstraints(pattern=r"^files/[a-z_]+-[0-9a-f]{32}\.(parquet|faiss)$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    bytes: int = Field(ge=0)
    rows: int = Field(ge=0)


class Stamp(Record):
    """What the index was made with. `prompts` maps prompt ids to versions; `models` names the language models."""

    encoder: str
    dimension: int = Field(gt=0)
    normalised: bool = True
    prompts: dict[str, str] = Field(default_factory=dict)
    models: tuple[str, ...] = ()
    resin_version: str


class Manifest(Record):
    """One generation. `files` are in the order that row numbers count in; `created_at` is ISO 8601, UTC.

    `generation` is the id; it stands in the file's name and not in the file.
    """

    generation: str = Field("", exclude=True)
    format_version: int = FORMAT_VERSION
    number: int = Field(ge=1)
    created_at: str
    stamp: Stamp
    counts: dict[str, int]
    units_by_kind: dict[str, int]
    files: tuple[FileEntry, ...]

    def sealed(self) -> Manifest:
        """The same manifest with the id that its number and content give."""
        return self.model_copy(update={"generation": generation_id(self.number, self.to_bytes())})

    def entries(self, name: str) -> tuple[FileEntry, ...]:
        """The files of one table, in row order."""
        return tuple(entry for entry in self.files if entry.name == name)

    def entry(self, name: str) -> FileEntry:
        """The only file of that name. Raises IndexCorruptError when there is none or more than one."""
        found = self.entries(name)
        if len(found) != 1:
            path = manifest_path(self.generation)
            raise IndexCorruptError(path, f"{path} lists {len(found)} files named {name!r}, expected one; index again")
        return found[0]

    def to_bytes(self) -> bytes:
        """The canonical JSON, as written."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1)
        return text.encode("ascii") + b"\n"


def generation_id(number: int, content: bytes) -> str:
    """The id of a manifest with this number and these bytes."""
    return f"g{number}-{hashlib.sha256(content).hexdigest()[:12]}"


def manifest_path(generation: str) -> str:
    """Where the manifest of a generation is, relative to the index folder."""
    return f"generations/{generation}.json"


def generation_number(generation: str) -> int | None:
    """The number in a generation's id, or None when it is no such id."""
    match = _GENERATION.fullmatch(generation)
    return int(match[1]) if match else None


def read_current(folder: IndexFolder) -> str:
    """The id of the generation that is served. Raises IndexMissingError or IndexCorruptError."""
    try:
        content = folder.read(POINTER)
    except FileNotFoundError:
        raise IndexMissingError(
            f"no index at {folder}; run resin index, or set index.uri to the right folder"
        ) from None
    except OSError as error:
        raise StoreError(f"{folder.full(POINTER)} cannot be read: {' '.join(str(error).split())}") from None
    generation = content[:-1].decode("ascii", "replace")
    # Strict to the last byte: a pointer that was altered must not be read as another one.
    if content[-1:] != b"\n" or generation_number(generation) is None:
        raise IndexCorruptError(
            POINTER, f"{folder.full(POINTER)} names no generation (it holds {content[:60]!r}); run resin index again"
        )
    return generation


def write_current(folder: IndexFolder, generation: str) -> None:
    """Replace the pointer in one step. Raises StoreError."""
    folder.put(POINTER, lambda stream: stream.write(generation.encode("ascii") + b"\n"))
    folder.sync([POINTER])


def read_manifest(folder: IndexFolder, generation: str | None = None) -> Manifest:
    """The manifest of a generation, by default of the one served.

    Raises IndexMissingError (no index, no such generation), IndexFormatError (written by a newer Resin),
    IndexCorruptError (altered, half written, or a pointer to nothing).
    """
    asked = generation
    if generation is None:
        generation = read_current(folder)
    elif generation_number(generation) is None:
        raise IndexMissingError(
            f"{generation!r} is no generation id (such as g3-0123456789ab); leave it out for the newest"
        )
    path = manifest_path(generation)
    try:
        content = folder.read(path)
    except FileNotFoundError:
        if asked is not None:
            raise IndexMissingError(f"no generation {asked} in the index at {folder}") from None
        message = f"{folder.full(POINTER)} names generation {generation}, but {path} is missing; run resin index again"
        raise IndexCorruptError(POINTER, message) from None
    except OSError as error:
        raise StoreError(f"{folder.full(path)} cannot be read: {' '.join(str(error).split())}") from None
    return _parse(folder, path, generation, content)


def _parse(folder: IndexFolder, path: str, generation: str, content: bytes) -> Manifest:
    where = folder.full(path)
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        raise IndexCorruptError(path, f"{where} is half written or garbled; run resin index again") from None
    version = values.get("format_version") if isinstance(values, Mapping) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise IndexFormatError(
            f"{where} has index format {version}, this Resin reads up to format {FORMAT_VERSION}; "
            "use a newer Resin, or index again with this one"
        )
    if generation_id(generation_number(generation) or 0, content) != generation:
        raise IndexCorruptError(path, f"{where} was altered: its content does not fit its name; run resin index again")
    if not isinstance(values, Mapping):
        raise IndexCorruptError(path, f"{where} is no manifest: it holds no object; run resin index again")
    try:
        return Manifest.model_validate({**values, "generation": generation})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise IndexCorruptError(
            path, f"{where} is no manifest: {field}: {first['msg']}; run resin index again"
        ) from None
