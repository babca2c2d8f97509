"""Composite events as text: how operators bind, the way back, and what is said of text that is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.composites import composites

from headgate.lang.composite import parse_composite, render_composite
from headgate.model import composite as model
from headgate.model.composite import Composite
from headgate.model.errors import BadExpression
from headgate.model.limits import MAX_COMPOSITE_CHARS, MAX_COMPOSITE_PARTS, MAX_EXPRESSION_DEPTH

A, B, C, D = (model.Template(name) for name in "ABCD")
TEXTS = [
    "$Seen(b, r1); Seen(b, r) - Seen(b, r1)",
    "($Seen(a, r); $Seen(b, r) - Seen(a, r1)) | ($Seen(b, r); $Seen(a, r) - Seen(b, r1))",
    "$Alarm(); ($Seen(b) - AllClear()); OwnsBadge(b, p)",
    "$Alarm() {t <- @ + 60}; AbsTime(t); $OwnsBadge(b, p); Seen(b)",
    "$serve(s); ((floor() | wall() | hit(i)) - front() | $front(); (floor(); floor()) - hit(i))",
    "hit(s) - hit(i) {i != s} | ($hit(i); hit(i) - hit(j) {j != i})",
    "Withdraw(z) {z > 500, z in 4..10, not z in {1, 2}} - {Delay = 5, Probability = 0.99} Stop(*, 'a', -3, true)",
    """$Open(x); { int t = 0; expr: $Deposit(x, a) - Close(x) event: t = t + new.a; kill hd.tl
    end: if (hd) { hd.t = t; hd.@ = @; accept hd; } }""",
    """$Start();{ pt q=null; expr: $Jump(d) - End() event: if(q==null) {q=new;}
    elseif(new.d>q.d) {kill q;q=new;} else {kill new;} end: if(hd) {accept hd;} }""",
    "{ expr: $Finish(a) event: if(var>hd) {accept hd;kill;} var: if(var>hd) {accept hd;kill;} }",
    "{ int n = 0; expr: A() event: n = n + 1; expr: B() event: loop (p = hd0) { kill p; } end: accept hd1; }",
    "sum a over ($Deposit(x, a) - Close(x)) by x, a; {Probability = 0.5} uk.gov.Seen()",
    "first (A() | B()) -- whichever it is",
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_read_is_written_and_read_again(text: str) -> None:
    read = parse_composite(text)
    assert parse_composite(render_composite(read)) == read


@settings(max_examples=300, deadline=None)
@given(composites(blocks=True))
def test_every_composite_event_can_be_written(c: Composite) -> None:
    assert parse_composite(render_composite(c)) == c


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("$A() - B()", model.Without(model.Whenever(A), B)),
        ("A() - B() - C()", model.Without(model.Without(A, B), C)),
        ("A() | B() - C()", model.Either(A, model.Without(B, C))),
        ("A(); B() | C()", model.Sequence(A, model.Either(B, C))),
        ("A(); B(); C()", model.Sequence(model.Sequence(A, B), C)),
        ("A() - (B(); C())", model.Without(A, model.Sequence(B, C))),
        ("$(A() | B()); $$C()", model.Sequence(model.Whenever(model.Either(A, B)), model.Whenever(model.Whenever(C)))),
    ],
)
def test_how_operators_bind(text: str, tree: Composite) -> None:
    assert parse_composite(text) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: the expression is empty"),
        ("A() -", "line 1, column 6: unexpected end, expected an event"),
        ("A() B()", "line 1, column 5: unexpected `B`, expected `-`, `|`, `;`, `{` or the end of the expression"),
        ("A(x) {@time > 3}", "line 1, column 7: there is no `@time`"),
        ("A($x)", "line 1, column 3: unexpected `$`"),
        ("Seen(b, r')", "names have no primes"),
        ("A(x) {x}", "line 1, column 7: `x` alone is no condition"),
        ("A(x) {x = 1 and t <- 2}", "`<-` stands inside a condition"),
        ("A(x) {x = null}", "a variable is never null"),
        ("A(x) {creator(x) = 1}", "`creator` is no value of a pattern"),
        ("A(); {Delay = 5} B()", "`;` has no Delay"),
        ("A() - {Probability = 2} B()", "`2` is no probability"),
        ("AbsTime()", "`AbsTime` takes one time"),
        ("sum (A(x))", "`sum` is of the values of a variable"),
        ("count x (A(x))", "`count` is of no variable"),
        ("{ int n = 'a'; expr: A() }", "`a` is not of kind"),
        ("{ event: kill; }", "expected"),
        ("A() - {Delay = 1e300} B()", "MAX_DELAY_SECONDS"),
        ("{ expr: A() event: " + "if (hd) {" * 400 + "kill;" + "}" * 400 + " }", "MAX_EXPRESSION_DEPTH"),
        ("{ expr: A() event: kill hd" + ".tl" * 400 + "; }", "MAX_EXPRESSION_DEPTH"),
        ("$" * (MAX_EXPRESSION_DEPTH + 1) + "A()", "MAX_EXPRESSION_DEPTH"),
        (" | ".join(["A()"] * 40 + ["(" + "; ".join(["B()"] * 60) + ")"] * 20), "MAX_"),
        ("A(" + "x" * MAX_COMPOSITE_CHARS + ")", "MAX_COMPOSITE_CHARS"),
    ],
)
def test_what_is_no_composite_event_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadExpression) as refusal:
        parse_composite(text)
    assert message in str(refusal.value)


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet="ABx1.,;|-${}()'\"<>=@*: \nnulexprvtdkihw_#", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = parse_composite(text)
    except BadExpression:
        return
    assert parse_composite(render_composite(read)) == read


def test_a_thousand_parts_are_the_most() -> None:
    text = " | ".join(f"({' ; '.join(['A()'] * 20)})" for _ in range(25))
    assert len(list(model.templates(parse_composite(text)))) == MAX_COMPOSITE_PARTS // 2
