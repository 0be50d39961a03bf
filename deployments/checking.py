"""Whether a Serve configuration file says what it means: Serve itself takes unknown keys without a word."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import ServeDeploySchema

from deployments.app import ServeArgs
from resin_core.errors import ConfigError

IMPORT_PATH = "deployments.app:build"
_MOST_BYTES = 1_000_000


def check_file(file: Path) -> ServeDeploySchema:
    """The checked file. Raises ConfigError naming every key that is unknown and what else is wrong."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{file} is longer than {_MOST_BYTES:,} bytes; is it a Serve configuration?")
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(loaded, Mapping):
        raise ConfigError(f"{file}: expected a mapping with applications")
    return check(loaded, str(file))


def check(values: Mapping[str, Any], called: str) -> ServeDeploySchema:
    """As `check_file`, of values that were read; `called` names them in messages."""
    problems = list(_unknown(values, ServeDeploySchema, ""))
    for at, application in enumerate(values.get("applications") or ()):
        if isinstance(application, Mapping) and application.get("import_path") == IMPORT_PATH:
            try:
                ServeArgs.model_validate(application.get("args") or {})
            except ValidationError as error:
                problems += _explained(error, f"applications.{at}.args.")
    try:
        schema: ServeDeploySchema = ServeDeploySchema.model_validate(values)
    except ValidationError as error:
        problems += _explained(error, "")
    if problems:
        raise ConfigError(f"{called}: {'; '.join(problems)}")
    return schema


def _unknown(value: Any, model: type[BaseModel], path: str) -> Iterator[str]:
    """Keys that the models do not have, at any depth."""
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        field = model.model_fields.get(str(key))
        if field is None:
            near = difflib.get_close_matches(str(key), model.model_fields, n=1)
            yield f"unknown key {path}{key}" + (f" (did you mean {near[0]}?)" if near else "")
            continue
        nested = next(_models(field.annotation), None)
        if nested is None:
            continue
        for at, one in enumerate(inner) if isinstance(inner, list) else ((None, inner),):
            yield from _unknown(one, nested, f"{path}{key}." + ("" if at is None else f"{at}."))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a field's annotation holds, in optional, union and list types too; free mappings are none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, list, tuple):
        for part in get_args(annotation):
            yield from _models(part)


def _explained(error: ValidationError, path: str) -> list[str]:
    return [
        f"{path}{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)
    ]
