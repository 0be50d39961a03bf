"""What all prompts share: an identity taken from their own text, and how content is shown to a model.

Content is put into messages by concatenation only: a document full of braces or of orders to the model stays data.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from resin_core.ids import digest
from resin_core.llm.protocol import Message

_TAG = re.compile(r"</?[A-Za-z][^<>]{0,40}>")


class WireReply(BaseModel):
    """Base of the response models: what a model adds unasked is ignored, what it owes is checked."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Prompt(NamedTuple):
    """A system text and worked examples, which come first so that a server can keep them as a shared prefix."""

    name: str
    system: str
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> str:
        """Name and a hash of the whole text: an edited prompt is another prompt, without a number to forget."""
        parts = [self.system, *(text for pair in self.examples for text in pair)]
        return f"{self.name}@{digest(parts, 8)}"

    def messages(self, user: str) -> tuple[Message, ...]:
        """System, examples as earlier turns, then `user`."""
        turns = [Message(role="system", content=self.system)]
        for asked, given in self.examples:
            turns += [Message(role="user", content=asked), Message(role="assistant", content=given)]
        return (*turns, Message(role="user", content=user))


def shown(text: str) -> str:
    """One line of a document as a model sees it: no markup, no NUL, no line breaks that could fake a new line."""
    plain = html.unescape(_TAG.sub("", text)) if ("<" in text or "&" in text) else text
    return " ".join(plain.replace("\x00", " ").split())


def fields(line: str) -> list[str]:
    """The parts of a `a | b | c` line, trimmed."""
    return [part.strip() for part in line.split("|")]
