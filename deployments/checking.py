"""Whether a Serve configuration file says what it means: Serve itself takes unknown keys without a word.

Knows only the file: what it names (a configuration, keys) is looked at where the application is built.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeDeploySchema

from deployments.app import ServeArgs
from resin_core.config import load_config
from resin_core.config.once import OnceLoader
from resin_core.errors import ConfigError

IMPORT_PATH = "deployments.app:build"
_MOST_BYTES = 1_000_000
_WHOLE = "the file as a whole"
_AUTOMATIC = AutoscalingConfig.default().model_dump()
_Problem = tuple[str, str]  # where, what


def check_file(file: Path) -> ServeDeploySchema:
    """The checked file. Raises ConfigError naming every key that is unknown and what else is wrong."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{file} is longer than {_MOST_BYTES:,} bytes; is it a Serve configuration?")
    try:
        loaded = yaml.load(data.decode("utf-8"), OnceLoader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid YAML{_place(error)}") from None
    if not isinstance(loaded, Mapping):
        raise ConfigError(f"{file}: expected a mapping with applications, got {_kind(loaded)}")
    return check(loaded, str(file))


def check(values: Mapping[str, Any], called: str) -> ServeDeploySchema:
    """As `check_file`, of values that were read; `called` names them in messages."""
    # The first that is said of a place counts: ours are the clearer words.
    problems: dict[str, str] = {}
    for where, what in (*_walked(values, ServeDeploySchema, ""), *_arguments(values)):
        problems.setdefault(where, what)
    for where, what in _wrong(ServeDeploySchema, values, ""):
        if where != _WHOLE or not problems:
            problems.setdefault(where, what)
    if problems:
        raise ConfigError(f"{called}: " + "; ".join(f"{where}: {what}" for where, what in problems.items()))
    schema: ServeDeploySchema = ServeDeploySchema.model_validate(values)
    return schema


def _arguments(values: Mapping[str, Any]) -> Iterator[_Problem]:
    """Of the arguments of Resin's own applications, and of the settings among them."""
    applications = values.get("applications")
    for at, application in enumerate(applications if isinstance(applications, list) else ()):
        if not isinstance(application, Mapping) or application.get("import_path") != IMPORT_PATH:
            continue
        path, given = f"applications.{at}.args.", application.get("args", {})
        yield from _walked(given, ServeArgs, path)
        yield from _wrong(ServeArgs, given, path)
        settings = given.get("set") if isinstance(given, Mapping) else None
        for number, setting in enumerate(settings if isinstance(settings, list) else ()):
            # A variable has its value only where the application is built.
            if not isinstance(setting, str) or "${" in setting:
                continue
            try:
                load_config(None, [setting], env={})
            except ConfigError as error:
                yield f"{path}set.{number}", str(error)


def _walked(value: Any, model: type[BaseModel], path: str) -> Iterator[_Problem]:
    """Keys that the models do not have, at any depth, and values of those that Serve takes as any mapping."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        yield path.removesuffix("."), f"expected a mapping, got {_kind(value)}"
        return
    for key, inner in value.items():
        field = model.model_fields.get(str(key))
        if field is None:
            near = difflib.get_close_matches(str(key), model.model_fields, n=1)
            yield f"{path}{key}", "unknown key" + (f"; did you mean {near[0]}?" if near else "")
            continue
        held = list(_held(field.annotation))
        nested = next((one for one in held if one is not dict), None)
        if nested is None:
            continue
        for at, one in enumerate(inner) if isinstance(inner, list) else ((None, inner),):
            below = f"{path}{key}." + ("" if at is None else f"{at}.")
            yield from _walked(one, nested, below)
            if dict in held and isinstance(one, Mapping):
                # With num_replicas auto, Serve takes other defaults than the model's own.
                automatic = nested is AutoscalingConfig and value.get("num_replicas") == "auto"
                yield from _wrong(nested, (_AUTOMATIC if automatic else {}) | dict(one), below)


def _wrong(model: type[BaseModel], value: Any, path: str) -> Iterator[_Problem]:
    """What the model finds wrong with the values."""
    try:
        model.model_validate(value)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            where = f"{path}{'.'.join(str(part) for part in item['loc'])}".removesuffix(".")
            yield where or "the file", item["msg"].removeprefix("Value error, ")
    except Exception as error:
        # Serve's models import what they name, and some of their checks take for granted what others refuse.
        yield path.removesuffix(".") or _WHOLE, f"Serve cannot read it: {error}"


def _held(annotation: Any) -> Iterator[type]:
    """The models that a field's annotation holds, in optional, union and list types too; dict for free mappings."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType, list, tuple):
        for part in get_args(annotation):
            yield from _held(part)
    elif origin is dict:
        yield dict
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _place(error: Exception) -> str:
    """Where and what, as far as it quotes nothing of the file: a setting there may be a key."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or ""
    told = f": {problem}" if problem and "'" not in problem else ""
    return f" (line {mark.line + 1}, column {mark.column + 1}){told}" if mark else f" ({type(error).__name__})"
