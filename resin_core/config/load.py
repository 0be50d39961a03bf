"""From files, the environment and `--set` to one checked configuration.

Order, later wins: defaults, the file of RESIN_CONFIG, the file of --config, RESIN_LLM_* variables, --set.
`${NAME}` is replaced from the environment in string values of the endpoint and secret fields only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from resin_core.config.sections import ResinConfig
from resin_core.errors import ConfigError

_ENV_FIELDS = {
    "RESIN_LLM_BASE_URL": ("llm", "base_url"),
    "RESIN_LLM_MODEL": ("llm", "model"),
    "RESIN_LLM_API_KEY": ("llm", "api_key"),
}
_SUBSTITUTED = {("llm", "base_url"), ("llm", "api_key"), ("llm", "model"), ("index", "uri")}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def load_config(
    file: Path | None = None, overrides: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> ResinConfig:
    """The effective configuration. Raises ConfigError naming the field, the value and the fix."""
    env = os.environ if env is None else env
    if file is None and env.get("RESIN_CONFIG"):
        file = Path(env["RESIN_CONFIG"])
    values: dict[str, Any] = _read(file) if file else {}
    for name, path in _ENV_FIELDS.items():
        if env.get(name):
            _put(values, path, env[name])
    for override in overrides:
        key, sign, raw = override.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"--set {override!r}: expected section.key=value")
        _put(values, tuple(key.strip().split(".")), _scalar(raw, override))
    for path in _SUBSTITUTED:
        _substitute(values, path, env)
    try:
        return ResinConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, file)) from None


def effective(config: ResinConfig) -> str:
    """The configuration as YAML, secrets masked."""
    return str(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def _read(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {file}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {file} is not valid YAML: {' '.join(str(error).split())}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(
            f"configuration file {file}: expected sections (index:, llm:, ...), got a {type(loaded).__name__}"
        )
    return loaded


def _scalar(raw: str, override: str) -> Any:
    try:
        return yaml.safe_load(raw) if raw.strip() else raw
    except yaml.YAMLError:
        raise ConfigError(f"--set {override!r}: the value is not valid YAML; quote it") from None


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    node = values
    for part in path[:-1]:
        child = node.setdefault(part, {})
        if child is None:
            child = node[part] = {}
        if not isinstance(child, dict):
            raise ConfigError(f"setting {'.'.join(path)}: {part} is not a section")
        node = child
    node[path[-1]] = value


def _substitute(values: dict[str, Any], path: tuple[str, str], env: Mapping[str, str]) -> None:
    section = values.get(path[0])
    if not isinstance(section, dict) or not isinstance(section.get(path[1]), str):
        return

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in env:
            raise ConfigError(
                f"setting {'.'.join(path)} refers to ${{{match[1]}}}, which is not set in the environment"
            )
        return env[match[1]]

    section[path[1]] = _VARIABLE.sub(value_of, section[path[1]])


def _explain(error: ValidationError, file: Path | None) -> str:
    lines = []
    for item in error.errors(include_url=False):
        name = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            lines.append(f"unknown setting {name}")
        else:
            shown = "" if "api_key" in name else f" (got {item['input']!r:.80})"
            lines.append(f"setting {name}: {item['msg']}{shown}")
    where = f" in {file}" if file else ""
    return f"configuration{where}: " + "; ".join(lines) + " - `resin config show` lists all settings"
