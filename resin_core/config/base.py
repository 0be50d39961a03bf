"""The base of every section of a configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen, and no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
