"""From what a user writes (a path or a URI) to a filesystem and a folder on it; credentials never come into a message.

S3 filesystems are built here and not by Arrow's URI reader, which knows neither timeouts nor odd letters in prefixes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from resin_core.errors import StoreError

# Three attempts each: an endpoint that does not answer is given up after some fifteen seconds.
_TIMEOUTS_S = {"connect_timeout": 5.0, "request_timeout": 5.0}
_TEXTS = ("region", "scheme", "endpoint_override", "tls_ca_file_path", "role_arn", "session_name", "external_id")
_FLAGS = (
    "allow_bucket_creation",
    "allow_bucket_deletion",
    "anonymous",
    "check_directory_existence_before_creation",
    "force_virtual_addressing",
)
_FLAG_VALUES = {"true": True, "1": True, "false": False, "0": False}


def resolve(location: str, env: Mapping[str, str] | None = None) -> tuple[Any, str]:
    """The pyarrow filesystem and the folder's path on it; `env` gives the default region of S3.

    Raises StoreError when the location is empty, its scheme or an option unknown, or its filesystem out of reach.
    """
    if not location.strip():
        raise StoreError("the index location is empty; give a folder or a URI, for example index.uri=./index")
    if "://" not in location:
        try:
            return pafs.LocalFileSystem(), Path(location).expanduser().absolute().as_posix()
        except RuntimeError as error:
            raise StoreError(f"index location {location!r}: {error}; write the home folder out") from None
    if location.partition("://")[0].lower() == "s3":
        return _s3(location, os.environ if env is None else env)
    try:
        filesystem, root = pafs.FileSystem.from_uri(location)
    except (OSError, ValueError, pa.ArrowException) as error:
        # Arrow repeats the URI, or a part of it, in its messages.
        why = "its filesystem refused it" if shown(location) != location else flat(error)
        raise StoreError(
            f"index location {shown(location)!r} cannot be opened: {why}; give a path, file://, s3:// or gs://"
        ) from None
    return filesystem, root


def shown(location: str) -> str:
    """The location without credentials and options, for messages."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return location
    # Up to the last @, and before any ?: a secret that was not percent-encoded may hold a slash, an @ or a ?.
    before, at, after = rest.rpartition("@")
    if at and before:
        after = f"***@{after}"
    return f"{scheme}://{after.partition('?')[0]}"


def flat(error: BaseException) -> str:
    """A message on one line."""
    return " ".join(str(error).split())


def _s3(location: str, env: Mapping[str, str]) -> tuple[Any, str]:
    def refuse(why: str) -> StoreError:
        return StoreError(f"index location {shown(location)!r} cannot be opened: {why}")

    try:
        parts = urlsplit(location)
    except ValueError:
        raise refuse("it is no URI; write s3://bucket/prefix") from None
    credentials, at, bucket = parts.netloc.rpartition("@")
    # What looks like credentials in the wrong place would otherwise become a bucket or a folder, and be shown.
    if ":" in bucket or re.search(r":.*@", parts.path) or parts.fragment:
        raise refuse("percent-encode what is special: / as %2F, @ as %40, : as %3A, # as %23, ? as %3F")
    if not bucket:
        raise refuse("it names no bucket; write s3://bucket/prefix")
    options: dict[str, Any] = {**_TIMEOUTS_S, **_options(parts.query, refuse)}
    if at:
        key, colon, secret = credentials.partition(":")
        if not (key and colon and secret):
            raise refuse("its credentials are not KEY:SECRET; leave them out to take them from the environment")
        options |= {"access_key": unquote(key), "secret_key": unquote(secret)}
    root = f"{bucket}{unquote(parts.path)}"
    try:
        if "region" not in options:
            options["region"] = _region(bucket, options, env)
        filesystem = pafs.S3FileSystem(**options)
        if options.get("allow_bucket_creation"):
            filesystem.create_dir(bucket)  # writing an object never makes its bucket
        return filesystem, root
    except (OSError, ValueError, pa.ArrowException) as error:
        raise refuse(f"{flat(error)}; check region, endpoint_override and the network") from None


def _options(query: str, refuse: Any) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _TEXTS:
            options[name] = value
        elif name in _FLAGS:
            if value.lower() not in _FLAG_VALUES:
                raise refuse(f"option {name} is {value!r}; write true or false")
            options[name] = _FLAG_VALUES[value.lower()]
        elif name in _TIMEOUTS_S:
            try:
                options[name] = float(value)
            except ValueError:
                raise refuse(f"option {name} is {value!r}; write seconds") from None
        else:
            known = ", ".join((*_TEXTS, *_FLAGS, *_TIMEOUTS_S))
            # Its value is not shown: it may be a secret under a name that does not exist.
            raise refuse(f"unknown option {name!r}; the options are {known}")
    return options


def _region(bucket: str, options: Mapping[str, Any], env: Mapping[str, str]) -> str:
    named = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    if named or options.get("endpoint_override"):
        return named or "us-east-1"
    return str(pafs.resolve_s3_region(bucket))
