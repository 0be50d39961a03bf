"""The demo's own judgement: right answers pass in many words, wrong ones that name the right thing do not."""

from __future__ import annotations

import pytest

from resin_core.cli.verdict import judge, wrong
from resin_core.records import Answer, EvidenceItem, Usage
from resin_core.sample import SampleQuestion, corpus, questions
from resin_core.text.sentences import split_sentences

QUESTIONS = {question.id: question for question in questions()}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=list(QUESTIONS))
def test_the_reference_answer_is_right(question: SampleQuestion) -> None:
    assert wrong(question, question.answer) == ""


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=list(QUESTIONS))
def test_gold_sentences_are_sentences_of_the_corpus(question: SampleQuestion) -> None:
    for doc_id, numbers in question.gold.items():
        text = (corpus() / doc_id).read_text(encoding="utf-8")
        sentences = split_sentences(doc_id, text, 1200)
        assert set(numbers) <= {sentence.number for sentence in sentences if text[sentence.char_start] != "#"}
        assert set(question.gold_sentences) >= {f"{doc_id}#s{number}" for number in numbers}


RIGHT = {
    "commute": [
        "You should take the metro. It takes 30 minutes and costs $8 [1].",
        "The metro is the right one: it takes 5 + 25 = 30 minutes [1] and costs $8 [2], bus 14 takes 45 minutes [3].",
        "Metro. The bus takes 45 minutes, which is too long.",
        "Bus 14 takes 45 minutes, which is over the limit, so take the metro Blue Line.",
        "The metro Blue Line is the better choice than bus 14.",
        "Instead of bus 14, the metro gets you there within 40 minutes.",
        "The metro takes 30 minutes and does not exceed $10. Bus 14 is cheaper.",
        "Yes, you can reach Harbour Works in time. The metro, at 30 minutes and $8, meets both limits.",
    ],
    "cold-chain": [
        "The Aster 200 stays cold 15 hours longer than the Borealis 90.",
        "Aster 200, by 15 hours [1][2].",
        "The Borealis 90 stays cold 15 hours less than the Aster 200.",
    ],
    "glassworks": ["Mara Velten designed the Osk Bridge [1].", "The engineer mara velten."],
}
WRONG = {
    "commute": [
        "",
        "The sources do not answer this.",
        "Take bus 14: it costs $4, less than the metro.",
        "Bus 14 is the right choice; the metro costs $8.",
        "Between the metro and bus 14, bus 14 is the better choice.",
        "You should not take the metro.",
        "The metro takes too long.",
        "The metro fails the limit of $10.",
        "Bus 14 is cheaper than the metro and takes 35 minutes.",
        "Take the metro or take the bus.",
        "Take the train.",
    ],
    "cold-chain": [
        "The Borealis 90 stays cold 15 hours longer than the Aster 200.",
        "The Aster 200 stays cold 115 hours longer.",
        "The Aster 200 stays cold 16 hours longer than the Borealis 90.",
        "The Aster 2001 stays cold 15 hours longer.",
    ],
    "glassworks": ["Jonas Reck.", "Mara Velten or Jonas Reck designed it.", "The Osk Bridge."],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in RIGHT.items() for text in texts])
def test_a_right_answer(name: str, text: str) -> None:
    assert wrong(QUESTIONS[name], text) == ""


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_a_wrong_answer(name: str, text: str) -> None:
    assert wrong(QUESTIONS[name], text) != ""


def test_missing_evidence_fails_a_right_answer() -> None:
    question = QUESTIONS["cold-chain"]
    item = EvidenceItem(
        passage_id="p", doc_id="cold-chain/aster-200.md", sentence_ids=("cold-chain/aster-200.md#s4",), hops=(1,)
    )
    answer = Answer(
        question=question.question,
        answer=question.answer,
        citations=(),
        evidence=(item,),
        pool=(),
        strategy="resin",
        generation="g1",
        trace_id="t",
        usage=Usage(),
        timings_s={},
    )
    verdict = judge(question, answer)
    assert (verdict.gold, verdict.found, verdict.missing) == (2, 1, ("cold-chain/borealis-90.md#s4",))
    assert verdict.right
    assert not verdict.passed
