"""Who may use the endpoint: bearer keys, what each is for, and how often it may be used.

Keys are known by their hashes only. No message, log line or error holds a key or a hash. Knows nothing of HTTP beyond
the Authorization header's text, and nothing of Ray: the count that replicas share is handed in.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from deployments.rates import Allow, SharedRates
from resin_core.config.serving import KeySection, Scope, ServingSection
from resin_core.errors import ConfigError

_MAX_HEADER_CHARS = 512
_BEARER = re.compile(r"bearer +([!-~]+) *", re.IGNORECASE)
_MAX_FILE_BYTES = 1_000_000
# Of a file of keys: what is longer than this may be a key or a hash, and is not shown.
_SHOWN_CHARS, _SHOWN_PROBLEMS = 20, 5


class AccessError(Exception):
    """The request is refused; the message says how to mend it. `retry_after_s` is set with 429."""

    def __init__(self, status: Literal[401, 403, 429], message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        # By default it would be rebuilt from its message alone, which __init__ does not take.
        return type(self), (self.status, str(self), self.retry_after_s), dict(self.__dict__)


class Caller(NamedTuple):
    """Who makes a request: the name of the key, or "anonymous" where none is required."""

    name: str
    scopes: frozenset[Scope]


class Access:
    """Checks one request after the other. Scopes are taken as they are listed: admin includes no other."""

    def __init__(self, keys: tuple[KeySection, ...], allow: Allow | None = None) -> None:
        """Without keys none is required and everything is allowed; `of` sees to it that this is meant.

        `allow` keeps the count that replicas share, as SharedRates has it; None: this process counts for itself.
        """
        self._keys = [(bytes.fromhex(key.sha256), key) for key in keys]
        self._rates = SharedRates(allow)

    @classmethod
    def of(cls, serving: ServingSection, allow: Allow | None = None) -> Access:
        """From serving.keys and serving.keys_file. As soon as there are keys, one is always required.

        Raises ConfigError for a file that cannot be used, for a name or hash given twice, and when there is no key
        although serving.allow_anonymous is off or a file of keys is named.
        """
        keys = serving.keys
        if serving.keys_file is not None:
            keys += _read(serving.keys_file)
        _refuse_twins(keys)
        if not keys and serving.keys_file is not None:
            raise ConfigError(
                f"serving.keys_file {serving.keys_file}: the list holds no key; make one with `resin key NAME`, or set "
                "serving.keys_file=null"
            )
        if not keys and not serving.allow_anonymous:
            raise ConfigError(
                "serving.keys: there is no key, so nobody could ask anything; make one with `resin key NAME`, or set "
                "serving.allow_anonymous=true to let everybody in who reaches this address"
            )
        return cls(keys, allow)

    async def check(self, authorization: str | None, scope: Scope) -> Caller:
        """The caller, counted as one request; `authorization` is that header's value.

        Raises AccessError: 401 without a known key, 403 when it is not for `scope`, 429 when it was used too often.
        """
        if not self._keys:
            return Caller("anonymous", frozenset(Scope))
        key = self._known(_presented(authorization))
        if scope not in key.scopes:
            raise AccessError(
                403,
                f"the key {key.name!r} is not for {scope}; use one that is, or have {scope} added to its scopes",
            )
        if key.per_minute is not None:
            await self._count(key.name, key.per_minute)
        return Caller(key.name, frozenset(key.scopes))

    def _known(self, presented: str) -> KeySection:
        digest = hashlib.sha256(presented.encode("ascii")).digest()
        found = None
        # To the end, and in constant time each: how long it takes tells nothing about the keys.
        for known, key in self._keys:
            if hmac.compare_digest(known, digest):
                found = key
        if found is None:
            raise AccessError(401, "the key is not known here; check it for missing characters, or ask for a new one")
        return found

    async def _count(self, name: str, per_minute: int) -> None:
        wait_s = await self._rates.allow(name, per_minute)
        if wait_s > 0:
            retry_after_s = math.ceil(wait_s)
            raise AccessError(
                429,
                f"the key {name!r} may make {per_minute} requests a minute; try again in {retry_after_s} s",
                retry_after_s,
            )


def _presented(authorization: str | None) -> str:
    """The key in the header, in printable ASCII. Raises AccessError 401."""
    if not authorization:
        raise AccessError(401, "a key is required; send the header `Authorization: Bearer KEY`")
    if len(authorization) > _MAX_HEADER_CHARS:
        raise AccessError(401, f"the Authorization header is longer than {_MAX_HEADER_CHARS} characters; send one key")
    found = _BEARER.fullmatch(authorization)
    if found is None:
        raise AccessError(401, "the Authorization header cannot be read; send `Authorization: Bearer KEY`")
    return found[1]


def _refuse_twins(keys: tuple[KeySection, ...]) -> None:
    names: set[str] = set()
    hashes: dict[str, str] = {}
    for key in keys:
        if key.name in names:
            raise ConfigError(f"serving.keys and keys_file: two keys are called {key.name!r}; rename one of them")
        if key.sha256 in hashes:
            raise ConfigError(
                f"serving.keys and keys_file: {hashes[key.sha256]!r} and {key.name!r} have the same sha256; make one "
                "of them anew with `resin key NAME`"
            )
        names.add(key.name)
        hashes[key.sha256] = key.name


def _read(file: str) -> tuple[KeySection, ...]:
    """The keys in a file. Raises ConfigError, which repeats nothing of it that may be secret."""
    called = f"serving.keys_file {file}"
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such path"
        raise ConfigError(f"{called}: {reason}; name a file that this process may read") from None
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"{called}: longer than {_MAX_FILE_BYTES:,} bytes; name a file that holds keys only")
    entries = _parsed(data, called)
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise ConfigError(
            f"{called}: expected a list of keys, got a {type(entries).__name__}; begin each with `- name:`"
        )
    keys, problems = [], []
    for number, entry in enumerate(entries, 1):
        try:
            keys.append(KeySection.model_validate(entry))
        except ValidationError as error:
            problems += [f"key {number}: {_explain(item)}" for item in error.errors(include_url=False)]
    if problems:
        more = f"; and {len(problems) - _SHOWN_PROBLEMS} more" if len(problems) > _SHOWN_PROBLEMS else ""
        raise ConfigError(f"{called}: {'; '.join(problems[:_SHOWN_PROBLEMS])}{more}")
    return tuple(keys)


def _parsed(data: bytes, called: str) -> Any:
    where = ""
    try:
        text = data.decode("utf-8-sig")
        try:
            return json.loads(text, object_pairs_hook=_fields)
        except json.JSONDecodeError:
            return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except _TwiceError as error:
        raise ConfigError(f"{called}: the field {error} is given twice in one key; keep one of them") from None
    except Exception as error:
        # YAML's errors, and those of the values it builds, which are of any kind, quote the file: say only the place.
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    raise ConfigError(f"{called}: not valid YAML or JSON{where}; write a list of keys as `resin key` prints it")


class _TwiceError(Exception):
    """A field that is given twice: the first would be lost without a word."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        _fields([(key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        return super().construct_mapping(node, deep)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(_shown(name))
        found[name] = value
    return found


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else "(too long to be shown)"


def _explain(item: ErrorDetails) -> str:
    name = _shown(".".join(str(part) for part in item["loc"]))
    fields = ", ".join(KeySection.model_fields)
    if item["type"] == "model_type":
        return f"expected the fields {fields}; got a {type(item['input']).__name__}"
    if item["type"] == "extra_forbidden":
        return f"unknown field {name}; there are: {fields}"
    value = item["input"]
    may_show = name.startswith(("scopes", "per_minute")) and isinstance(value, str | int | float)
    return f"{name}: {item['msg']}" + (f" (got {_shown(repr(value))})" if may_show else "")
