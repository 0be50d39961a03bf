"""From files, the environment and `--set` to one checked configuration.

Order, later wins: defaults, the file of --config (or else of RESIN_CONFIG), RESIN_LLM_* variables, --set.
`${NAME}` is replaced from the environment in endpoint and secret fields; in any other field it is an error.
Messages show no value that may hold a secret.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from resin_core.config.base import Section
from resin_core.config.once import OnceLoader
from resin_core.config.sections import ResinConfig
from resin_core.errors import ConfigError

_ENV_FIELDS = {
    "RESIN_LLM_BASE_URL": ("llm", "base_url"),
    "RESIN_LLM_MODEL": ("llm", "model"),
    "RESIN_LLM_API_KEY": ("llm", "api_key"),
}
_SUBSTITUTED = (
    ("index", "uri"),
    *(("llm", *role, name) for role in ((), ("planner",), ("composer",)) for name in ("api_key", "base_url", "model")),
    ("serving", "keys_file"),
    ("serving", "otlp_endpoint"),
    ("serving", "traces", "uri"),
)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]+(?=@)")
_QUOTED = re.compile(r"'(?!<)[^']{4,}'")  # of the file itself; shorter ones are punctuation, <...> are YAML's terms
_MASK = "**********"

_Path = tuple[str, ...]


def load_config(
    file: Path | None = None, overrides: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> ResinConfig:
    """The effective configuration. Raises ConfigError naming the field, the value and the fix."""
    env = os.environ if env is None else env
    named_by = ""
    if file is None and env.get("RESIN_CONFIG"):
        file, named_by = Path(env["RESIN_CONFIG"]), " (named by RESIN_CONFIG)"
    values = _read(file, f"configuration file {file}{named_by}") if file is not None else {}
    from_env = {path: env[name] for name, path in _ENV_FIELDS.items() if env.get(name)}
    from_set = [_override(text) for text in overrides]
    for path, value in [*from_env.items(), *from_set]:
        _put(values, path, value)
    # Last, so that a variable named in a value that was replaced need not be set; what came from one stays as it is.
    verbatim = from_env.keys() - {path for path, _ in from_set}
    for path, text, holder, key in list(_texts(values)):
        if path not in verbatim and _VARIABLE.search(text):
            holder[key] = _substituted(path, text, env)
    _fill_empty_sections(values, ResinConfig)
    try:
        return ResinConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, file)) from None


def effective(config: ResinConfig) -> str:
    """The configuration as YAML; secrets and the user part of addresses are masked."""
    values = config.model_dump(mode="json")
    for _, text, holder, key in list(_texts(values)):
        holder[key] = _USER_INFO.sub(_MASK, text)
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def _read(file: Path, called: str) -> dict[str, Any]:
    try:
        loaded = yaml.load(file.read_text(encoding="utf-8"), OnceLoader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise ConfigError(f"{called}: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{called} is not valid YAML: {_problem(error)}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{called}: expected sections (index:, llm:, ...), got a {type(loaded).__name__}")
    return loaded


def _problem(error: Exception) -> str:
    """What is wrong and where, without the quoted line: it may hold a key."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    problem = _QUOTED.sub("'...'", getattr(error, "problem", None) or "cannot be read")
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _override(text: str) -> tuple[_Path, Any]:
    """One --set: where it goes and its value, which is YAML unless the field holds text."""
    key, sign, raw = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not sign or not all(path):
        raise ConfigError(f"--set {key!r}: expected section.key=value")
    raw = raw.strip()
    name = ".".join(path)
    field = _field(path)
    is_text = field is not None and not {str, SecretStr}.isdisjoint(_alternatives(field.annotation))
    if is_text and raw[:1] not in ("'", '"') and raw not in ("null", "~"):
        return path, raw  # a name such as 1.5 or 2024-01-01 is text here
    if not raw:
        raise ConfigError(f"--set {name}: the value is missing; write {name}=VALUE, or {name}=null for none")
    try:
        return path, yaml.load(raw, OnceLoader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"--set {name}: the value is not valid YAML; quote it") from None


def _alternatives(annotation: Any) -> set[Any]:
    """The types of an optional or union type, or the type itself; those inside a list or mapping are none of them."""
    return set(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else {annotation}


def _put(values: dict[str, Any], path: _Path, value: Any) -> None:
    node = values
    for part in path[:-1]:
        if node.get(part) is None:
            node[part] = {}
        if not isinstance(node[part], dict):
            raise ConfigError(f"setting {'.'.join(path)}: {part} is not a section")
        node = node[part]
    node[path[-1]] = value


def _texts(node: Any, path: _Path = ()) -> Iterator[tuple[_Path, str, Any, Any]]:
    """Every string value: its path, itself, and the dict or list that holds it, with its key there."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        here = (*path, str(key))
        if isinstance(value, str):
            yield here, value, node, key
        else:
            yield from _texts(value, here)


def _substituted(path: _Path, text: str, env: Mapping[str, str]) -> str:
    name = ".".join(path)
    if path not in _SUBSTITUTED:
        allowed = ", ".join(".".join(field) for field in _SUBSTITUTED)
        raise ConfigError(f"setting {name}: ${{NAME}} is replaced only in {allowed}; write the value itself")

    def value_of(match: re.Match[str]) -> str:
        if not env.get(match[1]):
            raise ConfigError(f"setting {name} refers to ${{{match[1]}}}, which is not set in the environment; set it")
        return env[match[1]]

    return _VARIABLE.sub(value_of, text)


def _section(field: FieldInfo | None) -> type[Section] | None:
    kind = field.annotation if field else None
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _field(path: _Path) -> FieldInfo | None:
    """The field at a dotted path, if there is one."""
    section: type[Section] | None = ResinConfig
    field = None
    for part in path:
        field = section.model_fields.get(part) if section else None
        section = _section(field)
    return field


def _fill_empty_sections(values: dict[str, Any], kind: type[Section]) -> None:
    """A section all of whose lines are commented out reads as null: it means the defaults."""
    for name, field in kind.model_fields.items():
        section = _section(field)
        if section is None or name not in values:
            continue
        if values[name] is None:
            values[name] = {}
        elif isinstance(values[name], dict):
            _fill_empty_sections(values[name], section)


def _explain(error: ValidationError, file: Path | None) -> str:
    where = f" in {file}" if file else ""
    lines = "; ".join(_explain_one(item) for item in error.errors(include_url=False))
    return f"configuration{where}: {lines} - `resin config show` lists all settings"


def _explain_one(item: ErrorDetails) -> str:
    path = tuple(str(part) for part in item["loc"])
    name = ".".join(path)
    if item["type"] in ("extra_forbidden", "invalid_key"):
        section = _section(_field(path[:-1])) if path[:-1] else ResinConfig
        near = difflib.get_close_matches(path[-1], section.model_fields if section else (), n=1)
        return f"unknown setting {name}" + (f" (did you mean {'.'.join((*path[:-1], *near))}?)" if near else "")
    if item["type"] == "model_type":
        return f"setting {name}: expected a section with keys of its own, got a {type(item['input']).__name__}"
    field = _field(path)
    # A key itself may have been written where its hash belongs.
    hidden = path[-1] == "sha256" or (field is not None and SecretStr in _alternatives(field.annotation))
    return f"setting {name}: {item['msg']}" + ("" if hidden else f" (got {item['input']!r:.80})")
