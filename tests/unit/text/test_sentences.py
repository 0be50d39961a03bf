import time

import pytest

from resin_core.text.sentences import language_of, sentence_spans, split_sentences


def cut(text: str, max_chars: int = 1200) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, max_chars)]


def test_records_are_numbered_from_one() -> None:
    first, second = split_sentences("d/1.txt", " One is. Two is.\n")
    assert (first.sentence_id, first.number, first.char_start, first.char_end) == ("d/1.txt#s1", 1, 1, 8)
    assert (second.sentence_id, second.number, second.char_start, second.char_end) == ("d/1.txt#s2", 2, 9, 16)


@pytest.mark.parametrize("text", ["", "   ", "\n\r\n\t\u3000\u2028\x85\x1c"])
def test_blank_text_has_no_sentences(text: str) -> None:
    assert split_sentences("d", text) == ()


def test_max_chars_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_chars is 0"):
        sentence_spans("a", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Smith et al. (2020) saw it. It held.", ["Smith et al. (2020) saw it.", "It held."]),
        ("Found by Jones et al. in 1990. It held.", ["Found by Jones et al. in 1990.", "It held."]),
        ("Dr. Smith met J. K. Rowling. They talked.", ["Dr. Smith met J. K. Rowling.", "They talked."]),
        (
            "Use tools, e.g. a saw, i.e. this. See Fig. 3 and Eq. 4. Then rest.",
            ["Use tools, e.g. a saw, i.e. this.", "See Fig. 3 and Eq. 4.", "Then rest."],
        ),
        ("It is 3.5 m long. It was 2.", ["It is 3.5 m long.", "It was 2."]),
        ("A Mucor sp. nov. was found. Candida spp. grow.", ["A Mucor sp. nov. was found.", "Candida spp. grow."]),
        (
            "We saw An. stephensi and E. coli. p53 rose. mRNA fell.",
            ["We saw An. stephensi and E. coli.", "p53 rose.", "mRNA fell."],
        ),
        ("Loss of H2A.Z was seen. Data: osf.io/abc. End.", ["Loss of H2A.Z was seen.", "Data: osf.io/abc.", "End."]),
        ("It took approx. 5 days. No. 5 was late.", ["It took approx. 5 days.", "No. 5 was late."]),
        ("No. Yes. I went.", ["No.", "Yes.", "I went."]),
        ("It was glued.Then it went on.", ["It was glued.", "Then it went on."]),
        ("(1) Aims: We did it. It held. (2) Methods: So.", ["(1) Aims: We did it.", "It held.", "(2) Methods: So."]),
        ("{The whole is braced. It has parts.}", ["{The whole is braced.", "It has parts.}"]),
        ("1. First one. Its second.", ["1. First one.", "Its second."]),
        ("He came. 😀", ["He came. 😀"]),
        ("A Salvia by Benth. (Lamiaceae). It grew.", ["A Salvia by Benth. (Lamiaceae).", "It grew."]),
        ("Use <i>L. lactis</i> and <i>O. badius</i>. Done.", ["Use <i>L. lactis</i> and <i>O. badius</i>.", "Done."]),
    ],
)
def test_english(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("他来了。你好！是吗？结束。2020年开始。", ["他来了。", "你好！", "是吗？", "结束。", "2020年开始。"]),
        ("ذهب محمد. هل عاد؟ نعم عاد۔", ["ذهب محمد.", "هل عاد؟", "نعم عاد۔"]),
        (
            "Kitap 16. yüzyıldan kalmadır. Prof. Dr. Ali geldi.",
            ["Kitap 16. yüzyıldan kalmadır.", "Prof. Dr. Ali geldi."],
        ),
        ("मैं घर गया। तुम कहाँ हो?", ["मैं घर गया।", "तुम कहाँ हो?"]),
        ("Он жил в 1990 г. в Москве. Да.", ["Он жил в 1990 г. в Москве.", "Да."]),
        ("Τι κάνεις; Καλά.", ["Τι κάνεις;", "Καλά."]),
        ("Hello 😀 one. Cafe\u0301 two. A \x00 three.", ["Hello 😀 one.", "Cafe\u0301 two.", "A \x00 three."]),
    ],
)
def test_other_scripts(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hello", "en"),
        ("Größe", "en"),
        ("你好吗", "zh"),
        ("これは漢字", "ja"),
        ("مرحبا", "ar"),
        ("Привет", "ru"),
        ("\ufffd", "en"),
    ],
)
def test_language(text: str, language: str) -> None:
    assert language_of(text) == language


def test_structure_ends_sentences_and_wrapping_does_not() -> None:
    text = (
        "# Title\r\n\r\n## Sub heading\r\nSome text that is\r\nwrapped over lines. Second\r\nsentence here.\r\n"
        "- item one\r\n- item two\r\n  goes on\r\n1) first\r\n2) second\r\n| a | b |\r\n| c | d |\r\n"
        "Setext\r\n======\r\nBody without an end\r\n \r\nLast"
    )
    assert cut(text) == [
        "# Title",
        "## Sub heading",
        "Some text that is\r\nwrapped over lines.",
        "Second\r\nsentence here.",
        "- item one",
        "- item two\r\n  goes on",
        "1) first",
        "2) second",
        "| a | b |",
        "| c | d |",
        "Setext\r\n======",
        "Body without an end",
        "Last",
    ]


def test_a_short_line_over_a_paragraph_is_a_heading() -> None:
    text = "Results\nThe trees grew faster than before in every one of the plots seen, and so did the\nUndergrowth."
    assert cut(text)[0] == "Results"
    assert len(cut(text)) == 2


def test_long_sentences_are_cut_at_white_space() -> None:
    text = "word " * 100
    parts = cut(text, 80)
    assert all(len(part) <= 80 and part.split() == ["word"] * len(part.split()) for part in parts)
    assert "".join(parts).replace(" ", "") == "word" * 100


def test_long_sentences_are_cut_at_an_inner_end_first() -> None:
    assert cut('"' + "A" * 30 + " b. " + "C" * 30 + " d", 50) == ['"' + "A" * 30 + " b.", "C" * 30 + " d"]


@pytest.mark.parametrize("unit", ["e\u0301", "\U0001f44b\U0001f3fd", "\u0915\u094d"])
def test_a_cut_without_white_space_keeps_marks_with_their_base(unit: str) -> None:
    parts = cut(unit * 100, 81)
    assert "".join(parts) == unit * 100
    assert all(part.startswith(unit[0]) and len(part) <= 81 for part in parts)


def test_a_text_of_marks_only_is_cut_all_the_same() -> None:
    assert [len(part) for part in cut("\u0301" * 100, 40)] == [40, 40, 20]


def test_a_panic_in_the_library_gives_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(language: str, text: str) -> None:
        raise PanicException

    monkeypatch.setattr("sentencex.get_sentence_boundaries", panic)
    assert cut("One is. Two is.\n\nThree.") == ["One is. Two is.", "Three."]


def test_an_interrupt_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(language: str, text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sentencex.get_sentence_boundaries", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sentence_spans("One is.")


def test_wide_white_space_behind_a_capital_is_no_trouble() -> None:
    assert cut("A\u3000.b. A\x85.c. A\u2028.:") != []


def test_lone_surrogates_keep_offsets() -> None:
    text = "One \ud800 is. Two \udfff is."
    assert cut(text) == ["One \ud800 is.", "Two \udfff is."]


@pytest.mark.parametrize("unit", ["word ", "x", "'([\" ", "! ", "中", "(1)", "e\u0301"])
def test_five_megabytes_without_an_end_take_seconds(unit: str) -> None:
    text = unit * (5_000_000 // len(unit))
    started = time.perf_counter()
    spans = sentence_spans(text)
    assert time.perf_counter() - started < 20
    assert max(end - start for start, end in spans) <= 1200


def test_a_sentence_across_the_librarys_window_stays_whole() -> None:
    text = "This is one more sentence of the text, the same each time. " * 2000
    assert set(cut(text)) == {"This is one more sentence of the text, the same each time."}
