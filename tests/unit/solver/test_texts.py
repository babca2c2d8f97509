"""Representatives: whatever the text, one of them answers every question the same."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from headgate.decide.truth import has_token
from headgate.solver.texts import Letters, TextQuestion, representatives
from strategies.running import examples

LETTERS = st.sampled_from(["a", "b", " ", "\t", "\0", "\U0010ffff"])
CONSTANTS = st.text(LETTERS, max_size=3)
QUESTIONS = st.builds(
    TextQuestion, st.sampled_from(["equals", "order", "starts with", "contains", "has token"]), CONSTANTS
)


def answers(questions: list[TextQuestion], text: str) -> tuple[object, ...]:
    return tuple(answer(one, text) for one in questions)


def answer(question: TextQuestion, text: str) -> object:
    constant = question.constant
    match question.asks:
        case "equals":
            return text == constant
        case "order":
            return (text > constant) - (text < constant)
        case "starts with":
            return text.startswith(constant)
        case "contains":
            return constant in text
        case "has token":
            return has_token(text, constant)


@given(st.lists(QUESTIONS, max_size=4), st.lists(st.text(st.one_of(LETTERS, st.characters()), max_size=6), max_size=20))
@examples(300)
def test_every_text_has_a_representative(questions: list[TextQuestion], texts: list[str]) -> None:
    found = representatives(questions)
    assert found is not None
    known = {answers(questions, one) for one in found}
    assert len(known) == len(found), "no two answer alike"
    assert all(answers(questions, text) in known for text in texts)


def test_too_many_are_not_sought() -> None:
    assert representatives([TextQuestion("contains", chr(97 + n) * 30) for n in range(10)]) is None


@given(st.lists(CONSTANTS, min_size=1, max_size=4))
@examples(100)
def test_letters_keep_order_and_come_back(constants: list[str]) -> None:
    letters = Letters(constants, 2, words=True)
    put = [letters.put(one) for one in constants]
    assert sorted(constants) == [constants[put.index(one)] for one in sorted(put)]
    escaped = ["".join(f"\\u{{{ord(c):x}}}" for c in one) for one in put]
    assert [letters.read(one) for one in escaped] == constants
    assert letters.read(chr(0x2FFFF)) is None
