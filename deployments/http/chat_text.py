"""What a reader of a chat sees of an answer: its text, its sources below it, and where each reference points.

Pure; it knows nothing of requests. Lone surrogates, which no response can carry, become U+FFFD.
"""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

from deployments.http.chat_records import Annotation, UrlCitation
from resin_core.records import Answer, Citation
from resin_core.text.decode import scrub

_REFERENCE = re.compile(r"\[(\d+)\]")
_WITH_BLANK = re.compile(r"\s*\[\d+\]")
_QUOTED_CHARS = 200


def text_of(answer: Answer) -> str:
    """The answer alone."""
    return scrub(answer.answer)


def sources_of(answer: Answer) -> str:
    """What follows the answer: each source's sentence, since few front ends show annotations; empty without any."""
    lines = [f"[{cited.number}] {_title(cited)}: {_short(cited.text)}" for cited in answer.citations]
    return scrub("\n".join(["\n\nSources:", *lines])) if lines else ""


def annotations_of(answer: Answer, base_url: str, index: str, start: int = 0) -> list[Annotation]:
    """One for each reference in the answer's text; `start` is where that text begins in what the client has."""
    cited = {citation.number: citation for citation in answer.citations}
    return [
        Annotation(
            url_citation=UrlCitation(
                start_index=start + match.start(),
                end_index=start + match.end(),
                title=_title(cited[number]),
                url=_link(cited[number], base_url, index),
            )
        )
        for match in _REFERENCE.finditer(text_of(answer))
        if (number := int(match[1])) in cited
    ]


class Written:
    """Content streamed so far. The answer's final text may differ, such as by references found at its end only."""

    def __init__(self) -> None:
        self.text = ""
        self._blanks = ""

    def take(self, piece: str) -> str:
        """What to send of a piece: blanks wait for what follows them, as the final text has none at its ends."""
        whole = self._blanks + scrub(piece)
        solid = whole.rstrip()
        self._blanks = whole[len(solid) :]
        if not self.text:
            solid = solid.lstrip()
        self.text += solid
        return solid

    def made_good(self, final: str) -> tuple[str, int]:
        """What to send so that the final text stands whole in the content, and where it begins there.

        What was sent cannot be taken back: a text that begins otherwise is sent once more, and called a correction
        when it says something else.
        """
        if final.startswith(self.text):
            return final[len(self.text) :], 0
        lead = "\n\n" if _said(final) == _said(self.text) else "\n\nCorrection: "
        return lead + final, len(self.text) + len(lead)


def _said(text: str) -> str:
    return " ".join(_WITH_BLANK.sub("", text).split())


def _title(citation: Citation) -> str:
    return " ".join(citation.title.split()) or citation.doc_id


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _QUOTED_CHARS else flat[: _QUOTED_CHARS - 1].rstrip() + "…"


def _link(citation: Citation, base_url: str, index: str) -> str:
    """The source itself where it is on the web, else its text here, with the sentence's characters (RFC 5147)."""
    if citation.uri.lower().startswith(("http://", "https://")):
        return citation.uri
    document = f"{base_url}/v1/documents/{quote(citation.doc_id, safe='')}?{urlencode({'index': index})}"
    return f"{document}#char={citation.char_start},{citation.char_end}"
