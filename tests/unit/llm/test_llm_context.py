"""Context length, token estimates and the check before the run."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest

from resin_core.config.sections import LLMSection
from resin_core.errors import ContextLengthError, LLMRequestError, LLMServerError, LLMUnavailableError
from resin_core.llm.context import check_endpoint, check_fits, context_tokens, count_tokens_estimate
from resin_core.llm.protocol import Message, Request
from tests.scripted_llm import Hang, Malformed, Status

SETTINGS = LLMSection(model="scripted", connect_timeout_s=5.0)
LLAMA = {"id": "/models/q.gguf", "aliases": ["scripted"], "meta": {"n_ctx": 2048, "n_ctx_train": 32768}}


# ---- context length


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([{"id": "scripted", "max_model_len": 8192}], 8192),
        ([LLAMA], 2048),
        ([{"id": "other", "max_model_len": 1}, LLAMA], 2048),
        ([{"id": "another-name", "max_model_len": 4096}], 4096),
        ([{"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 2}], None),
        ([{"id": "scripted", "object": "model", "meta": {"n_ctx_train": 32768}}], None),
        ([{"id": "scripted", "meta": None}], None),
        ([], None),
        (Status(404), None),
        (Malformed(b'[{"id": "scripted", "max_model_len": 77}]'), 77),
    ],
)
async def test_context_length_is_what_the_server_says(scripted_llm, models, expected):
    scripted_llm.models = models
    assert await context_tokens(SETTINGS, scripted_llm.base_url) == expected


async def test_a_configured_context_length_asks_nobody():
    assert await context_tokens(LLMSection(context_tokens=1234), "http://127.0.0.1:9/v1") == 1234


async def test_context_length_of_a_broken_endpoint_is_an_error(scripted_llm):
    scripted_llm.models = Status(500)
    with pytest.raises(LLMServerError):
        await context_tokens(SETTINGS, scripted_llm.base_url)


# ---- the endpoint


@pytest.mark.parametrize("models", [[], Status(404), Status(405), Status(501), Status(429)])
async def test_an_endpoint_that_is_there_passes(scripted_llm, models):
    scripted_llm.models = models
    await check_endpoint(SETTINGS, scripted_llm.base_url)


@pytest.mark.parametrize("models", [Status(503), Malformed(b"<html>", "text/html"), Hang()])
async def test_an_endpoint_that_is_not_ready_is_one_readable_error(scripted_llm, models):
    scripted_llm.models = models
    started = time.monotonic()
    with pytest.raises(LLMUnavailableError, match=r"start the server, or correct llm\.base_url"):
        await check_endpoint(SETTINGS, scripted_llm.base_url)
    assert time.monotonic() - started < SETTINGS.connect_timeout_s + 2


async def test_an_endpoint_that_is_down():
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(LLMUnavailableError, match=f"cannot reach the language model at {url}: .*unset"):
        await check_endpoint(SETTINGS, url)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_named(scripted_llm, status):
    scripted_llm.models = Status(status)
    with pytest.raises(LLMRequestError, match=r"the key is refused; check llm\.api_key"):
        await check_endpoint(SETTINGS, scripted_llm.base_url)


# ---- estimates

# Token counts of a vocabulary of 150,000 (Qwen2.5), taken from a llama.cpp server.
MEASURED = [
    (
        "The committee of the regional council approved, after two hours of debate, the "
        "extension of line 4 to the harbour.",
        24,
    ),
    ("In 2023 revenue was 1,234,567.89 EUR (up 12.5% from 1,097,393.20) on 31/12/2023.", 58),
    ('{"passages":[{"s":[1,2],"e":"Acme","u":[{"k":"relation","s":"Acme","p":"owns","o":"Beta"}]}]}', 36),
    (
        "Les délégués ont approuvé à l'unanimité la réforme proposée, "
        "malgré l'opposition énergique des régions côtières.",
        36,
    ),
    ("Комитет областного совета после двухчасовых прений одобрил продление четвёртой линии до гавани.", 33),
    ("وافقت لجنة المجلس الإقليمي بعد ساعتين من النقاش على تمديد الخط الرابع حتى الميناء.", 27),
    ("经过两个小时的辩论，地区议会委员会批准将四号线延长至港口。", 16),
    ("地域評議会の委員会は、二時間の討論の後、四号線の港までの延伸を承認した。", 29),
    ("दो घंटे की बहस के बाद क्षेत्रीय परिषद की समिति ने लाइन चार के विस्तार को मंजूरी दी।", 74),
    ("คณะกรรมการสภาภูมิภาคอนุมัติการขยายสายสี่ไปยังท่าเรือหลังจากการอภิปรายสองชั่วโมง", 39),
    ("Η επιτροπή του περιφερειακού συμβουλίου ενέκρινε την επέκταση της γραμμής τέσσερα.", 69),
    ("🚀🔥💡🎉👩\u200d💻🏳️\u200d🌈", 13),
    ("def f(x):\n    return [y**2 for y in x if y % 3 == 0 and y != 7]\n", 28),
]


@pytest.mark.parametrize(("text", "tokens"), MEASURED)
def test_estimates_are_on_the_high_side_but_not_wild(text, tokens):
    assert 0.9 * tokens <= count_tokens_estimate(text) <= 3.5 * tokens


def test_estimates_of_edge_cases():
    assert count_tokens_estimate("") == 0
    assert count_tokens_estimate("a") == 1
    assert count_tokens_estimate("\ud800\x00") >= 1
    assert count_tokens_estimate("12345") == 5


def test_estimates_are_fast():
    text = "The council of Zürich met 12 times; 会议 👍. " * 25_000
    started = time.monotonic()
    count_tokens_estimate(text)
    assert time.monotonic() - started < 1


# ---- fit


def test_a_prompt_that_cannot_fit_is_an_error_with_figures():
    request = Request(messages=(Message(role="user", content="word " * 1000),), max_tokens=500, prompt_id="extract@1")
    check_fits(request, None)
    check_fits(request, 4096)
    with pytest.raises(
        ContextLengthError, match=r"'extract@1' takes about 1437 tokens .* up to 500, .* is 1024 tokens"
    ):
        check_fits(request, 1024)


def test_a_prompt_that_just_fits_passes():
    request = Request(messages=(Message(role="user", content="a" * 35),), max_tokens=10)
    check_fits(request, 10 + 8 + 10)
    with pytest.raises(ContextLengthError):
        check_fits(request, 10 + 8 + 10 - 1)


def test_importing_the_client_loads_no_sdk():
    code = (
        "import sys; import resin_core.llm.build, resin_core.llm.context, resin_core.llm.structured;"
        "print([n for n in ('openai', 'httpx', 'json_repair') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
