from hypothesis import given
from hypothesis import strategies as st

from resin_core.text.sentences import sentence_spans, split_sentences

TRICKY = "ab A.!?。؟।\n\r\t \x00\ufffd\u0301\u200d😀👨\"'“”()[]1,;:-\u2028\x85\x1c\u3000é中ا#|{}%\\*"
texts = st.one_of(
    st.text(max_size=300),
    st.text(st.sampled_from(TRICKY), max_size=120),
    st.lists(
        st.sampled_from(["He. ", "et al. ", "(1) ", "- ", "\n", "\n\n", "# ", "3.5", "Fig. ", "中。", "x" * 30, "\r\n"])
    ).map("".join),
)


@given(texts, st.integers(1, 60))
def test_every_character_that_is_not_blank_lies_in_exactly_one_sentence(text: str, max_chars: int) -> None:
    spans = sentence_spans(text, max_chars)
    covered = [0] * len(text)
    last = 0
    for start, end in spans:
        assert last <= start < end <= len(text)
        assert end - start <= max_chars
        sentence = text[start:end]
        assert sentence == sentence.strip()
        for index in range(start, end):
            covered[index] += 1
        last = end
    for index, character in enumerate(text):
        assert covered[index] <= 1
        if not character.isspace():
            assert covered[index] == 1


@given(texts)
def test_the_same_text_gives_the_same_sentences(text: str) -> None:
    assert split_sentences("d", text) == split_sentences("d", text)
    assert [sentence.number for sentence in split_sentences("d", text)] == list(range(1, len(sentence_spans(text)) + 1))
