"""Bytes of the OpenAI chat API, as the scripted server sends them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.scripted_llm.actions import Reply, as_json

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


async def send(
    writer: asyncio.StreamWriter,
    code: int,
    body: bytes,
    content_type: str = "application/json",
    headers: dict[str, str] | None = None,
    length: int | None = None,
) -> None:
    """A whole HTTP response; a `length` beyond the body promises more than is sent."""
    lines = [f"HTTP/1.1 {code} {_REASONS.get(code, 'Scripted')}", f"content-type: {content_type}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += [f"content-length: {len(body) if length is None else length}", "", ""]
    writer.write("\r\n".join(lines).encode("latin-1") + body)
    await writer.drain()


async def send_whole(reply: Reply, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """A chat completion."""
    message = {"role": "assistant", "content": reply.text}
    body = _envelope(
        "chat.completion", [{"index": 0, "message": message, "finish_reason": reply.finish_reason}], request
    )
    if counts := reply.counts(request):
        body["usage"] = _usage(counts)
    await send(writer, 200, as_json(body))


async def send_stream(reply: Reply, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """A chat completion as server-sent events; without a finish reason it just ends."""
    await _open_stream(writer)
    for piece in reply.pieces():
        await _send_event(writer, _piece(piece, None, request))
        await asyncio.sleep(reply.piece_s)
    if reply.finish_reason is not None:
        await _send_event(writer, _piece(None, reply.finish_reason, request))
    counts = reply.counts(request)
    if counts and (request.get("stream_options") or {}).get("include_usage"):
        await _send_event(writer, _envelope("chat.completion.chunk", [], request) | {"usage": _usage(counts)})
    await _send_chunk(writer, b"data: [DONE]\n\n" if reply.finish_reason is not None else b": the end\n\n")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def send_start(pieces: int, text: str, stream: bool, writer: asyncio.StreamWriter) -> None:
    """The beginning of a reply that will not end."""
    if not stream:
        await send(writer, 200, b'{"object": "chat.completion", "choices": [{"mess', length=5000)
        return
    await _open_stream(writer)
    words = text.split()
    for at in range(pieces):
        await _send_event(writer, _piece(words[at % len(words)] + " ", None, {}))


async def _open_stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    await writer.drain()


async def _send_event(writer: asyncio.StreamWriter, value: Any) -> None:
    await _send_chunk(writer, b"data: " + as_json(value) + b"\n\n")


async def _send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


def _piece(content: str | None, finish_reason: str | None, request: dict[str, Any]) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    return _envelope("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": finish_reason}], request)


def _envelope(kind: str, choices: list[dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    model = request.get("model", "scripted")
    return {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": model, "choices": choices}


def _usage(counts: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": counts[0], "completion_tokens": counts[1], "total_tokens": sum(counts)}
