import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.text.decode import decode, scrub


def test_sound_utf8_is_kept_exactly() -> None:
    text = "a\r\nb\x00c\td 中文 😀 e\u0301\n"
    decoded = decode(text.encode())
    assert (decoded.text, decoded.encoding, decoded.notes) == (text, "utf-8", ())


def test_nothing_gives_nothing() -> None:
    assert decode(b"").text == ""


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
        (b"\xff\xfe\x00\x00", "utf-32-le"),
        (b"\x00\x00\xfe\xff", "utf-32-be"),
    ],
)
def test_marks_decide_and_are_dropped(mark: bytes, encoding: str) -> None:
    text = "Größe 😀\r\n\x00end"
    decoded = decode(mark + text.encode(encoding))
    assert (decoded.text, decoded.encoding, decoded.notes) == (text, encoding, ())


def test_a_mark_alone_is_empty_text() -> None:
    assert decode(b"\xff\xfe").text == ""


def test_utf16_cut_in_the_middle_is_replaced_with_a_note() -> None:
    decoded = decode(b"\xff\xfe" + "ab".encode("utf-16-le")[:-1])
    assert decoded.text == "a\ufffd"
    assert "utf-16-le" in decoded.notes[0]


def test_utf16_with_a_lone_surrogate_has_none_left() -> None:
    assert "\ud800" not in decode(b"\xff\xfe" + b"a\x00\x00\xd8b\x00").text


def test_broken_utf8_keeps_its_sound_parts() -> None:
    decoded = decode("Grüße aus Köln, ".encode() + b"\xff" + " schön".encode())
    assert decoded.text == "Grüße aus Köln, \ufffd schön"
    assert decoded.encoding == "utf-8"
    assert "U+FFFD" in decoded.notes[0]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("café", "latin-1"),
        ("Le café était fermé à Noël, déjà vu.", "latin-1"),
        ("Größe der Straße in München über Österreich", "latin-1"),
        ("A ação não é só isso, há também coração", "cp1252"),
        ("He said “hello” – it costs €5", "cp1252"),
        ("Bu çalışmada öğrencilerin başarısı değerlendirildi, İstanbul'da", "cp1254"),
        ("Привет, как дела? Это простой текст на русском языке.", "cp1251"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy", "cp1250"),
        ("他来了。你好！今天天气很好，我们去公园。", "gb18030"),
        ("これは日本語の文章です。漢字も使います。", "shift_jis"),
        ("ذهب محمد إلى المدرسة في الصباح", "cp1256"),
    ],
)
@pytest.mark.parametrize("repeats", [1, 30])
def test_older_encodings_are_guessed_with_a_note(text: str, encoding: str, repeats: int) -> None:
    raw = (text + " ").encode(encoding) * repeats
    decoded = decode(raw)
    assert decoded.text == (text + " ") * repeats
    assert decoded.encoding in decoded.notes[0]


def test_a_fault_far_into_a_large_file_is_still_sampled_and_fast() -> None:
    raw = b"plain text only. " * 600_000 + "déjà vu à Noël".encode("latin-1")
    started = time.perf_counter()
    decoded = decode(raw)
    assert time.perf_counter() - started < 5
    assert decoded.text.endswith("déjà vu à Noël")


def test_noise_is_decoded_the_same_way_twice() -> None:
    raw = os.urandom(5000)
    assert decode(raw) == decode(raw)


@given(st.binary(max_size=200))
def test_any_bytes_decode_without_surrogates(raw: bytes) -> None:
    decoded = decode(raw)
    assert scrub(decoded.text) == decoded.text
    decoded.text.encode("utf-8")


@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_scrub_keeps_length_and_every_sound_character(text: str) -> None:
    scrubbed = scrub(text)
    assert len(scrubbed) == len(text)
    for before, after in zip(text, scrubbed, strict=True):
        assert after == ("\ufffd" if "\ud800" <= before <= "\udfff" else before)
