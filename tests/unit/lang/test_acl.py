"""Access control lists: the algorithm of OASIS 5.4.4, Unix lists, and rules made of lists and lists of rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.apply import apply
from headgate.decide.publish import admit
from headgate.decide.views import view
from headgate.lang import parse_condition
from headgate.lang.acl import (
    ANYONE,
    Acl,
    AclEntry,
    acl,
    acl_of,
    ordered,
    parse_acl,
    parse_unix,
    render_acl,
    rules_of,
    unix_rights,
    unixacl,
)
from headgate.lang.rolefile import parse_role
from headgate.model.changes import AddMember, AddRule, Batch, DeclareGroup, DeclarePrincipal, DeclareType
from headgate.model.errors import BadDefinition, BadExpression, PublishDenied
from headgate.model.events import Draft, Event
from headgate.model.limits import MAX_ACL_CHARS, MAX_ACL_ENTRIES
from headgate.model.rights import Action, Effect, Rule, Source
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from strategies.running import examples

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
USERS, GROUPS = ("bob", "eve", "kim"), ("student", "staff", "people")
MEMBERS = {"student": ("bob", "kim"), "staff": ("eve", "kim"), "people": USERS}
FILE = "college.File"


def state(*rules: Rule) -> State:
    return apply(
        State(),
        Batch(
            ADMINISTRATOR,
            (
                *(DeclarePrincipal(name) for name in USERS),
                *(DeclareGroup(name) for name in GROUPS),
                *(AddMember(group, name) for group, names in MEMBERS.items() for name in names),
                DeclareType(EventType(FILE, "bob", {"text": Kind.STRING})),
                *(AddRule(rule) for rule in rules),
            ),
        ),
    )


def e(who: str, rights: str, *, negative: bool = False) -> AclEntry:
    return AclEntry(who, frozenset(rights), negative)


# -- text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", ()),
        ("  ", ()),
        ("+bob=rw -student=w student=r", (e("bob", "rw"), e("student", "w", negative=True), e("student", "r"))),
        ("rjh21=rwx staff=r-x other=r--", (e("rjh21", "rwx"), e("staff", "rx"), e("other", "r"))),
        ("Bob(Read/Write), -student(Write)", (e("Bob", "rw"), e("student", "w", negative=True))),
        ("Bob(Read / x),\n*=r", (e("Bob", "rx"), e(ANYONE, "r"))),
        ("a.b@c=r d()", (e("a.b@c", "r"), e("d", ""))),
        ("bob=---", (e("bob", ""),)),
    ],
)
def test_lists_as_they_are_written(text: str, entries: tuple[AclEntry, ...]) -> None:
    assert parse_acl(text) == Acl(entries)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bob", "`bob` is no entry of an access control list"),
        ("bob=rw; eve=r", "`bob=rw;` is no entry"),
        ("+bob=rw-student=w", "is no entry"),
        ("--bob=r", "is no entry"),
        ("bob=r1", "is no entry"),
        ("Bob(Read/Fly)", "`Fly` is no right"),
        ("Bob(Read", "is no entry"),
        ("a=r,,b=r", "`,b=r` is no entry"),
        ("a=r" * (MAX_ACL_CHARS // 2), "MAX_ACL_CHARS"),
        ("a=r " * (MAX_ACL_ENTRIES + 1), "MAX_ACL_ENTRIES"),
    ],
)
def test_what_is_no_list_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadExpression) as caught:
        parse_acl(text)
    assert said in str(caught.value)


def test_a_unix_list_has_no_negative_entries() -> None:
    with pytest.raises(BadExpression, match="no meaning in a Unix list"):
        parse_unix("bob=r -eve=w")


@examples(300)
@given(st.text(alphabet="bobReadWrite=+-*/(),. \n\trwx\0é"))
def test_any_text_is_a_list_or_is_refused(text: str) -> None:
    try:
        found = parse_acl(text)
    except BadExpression:
        return
    assert parse_acl(render_acl(found)) == found


# -- rights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "user", "rights"),
    [
        ("Bob(Read/Write), student(Read)", "Bob", "rw"),
        ("+bob=rw +student=r", "bob", "rw"),  # bob is a student
        ("-student=w +bob=rw +student=r", "bob", "r"),
        ("+bob=rw -student=w +student=r", "bob", "rw"),
        ("-student=w +people=rw", "kim", "r"),
        ("-student=w +people=rw", "eve", "rw"),
        ("+*=r -*=r +eve=rw", "eve", "rw"),
        ("-*=r +eve=rw", "eve", "w"),
        ("+nobody=rw", "eve", ""),
    ],
)
def test_entries_count_in_their_order(text: str, user: str, rights: str) -> None:
    assert acl(state(), text, user) == frozenset(rights)


@pytest.mark.parametrize(
    ("text", "user", "rights"),
    [
        ("bob=rwx student=r-x other=r--", "bob", "rwx"),
        ("bob=--- student=r-x other=r--", "bob", ""),
        ("student=r-x staff=-w- other=rwx", "kim", "rwx"),
        ("student=r-x other=r--", "eve", "r"),
        ("student=r-x", "eve", ""),
        ("other=w", "other", "w"),
    ],
)
def test_the_most_closely_binding_entry_counts_in_unix(text: str, user: str, rights: str) -> None:
    assert unixacl(state(), text, user) == frozenset(rights)


def test_only_text_is_looked_at() -> None:
    with pytest.raises(BadExpression):
        acl(state(), 3, "bob")
    with pytest.raises(BadExpression):
        unixacl(state(), "bob=r", frozenset("r"))


letters = st.frozensets(st.sampled_from("rw"))
entries = st.builds(AclEntry, st.sampled_from((*USERS, *GROUPS, ANYONE)), letters, st.booleans())
lists = st.builds(Acl, st.lists(entries, max_size=6).map(tuple))
plain = st.builds(AclEntry, st.sampled_from((*USERS, *GROUPS, "other")), letters)
unix = st.builds(Acl, st.lists(plain, max_size=5).map(tuple))


def by_algorithm(listed: Acl, whom: frozenset[str], full: frozenset[str]) -> frozenset[str]:
    """OASIS 5.4.4 to the letter: the rights to be granted, G, and the possible rights, P."""
    g, p = frozenset[str](), full
    for one in listed.entries:
        if one.who in whom or one.who == ANYONE:
            if one.negative:
                p = p - one.rights
            else:
                g = g | (p & one.rights)
    return g


@examples(200)
@given(lists, st.sampled_from(USERS))
def test_rules_made_of_a_list_decide_what_the_list_gives(listed: Acl, user: str) -> None:
    made = state(*rules_of(listed, FILE, anyone="people"))
    rights = by_algorithm(listed, made.groups_of(user) | {user}, frozenset("rw"))
    assert listed.rights(made.groups_of(user) | {user}) == rights
    assert ("r" in rights) == (view(made, user, event(), {}) is not None)
    assert ("w" in rights) == may_publish(made, user)
    assert acl_of(rules_of(listed, FILE, anyone="people")) == Acl(
        tuple(
            AclEntry("people" if o.who == ANYONE else o.who, o.rights, o.negative) for o in listed.entries if o.rights
        )
    )


@examples(200)
@given(unix, st.sampled_from((*USERS, "guest")))
def test_a_unix_list_as_an_ordered_one_gives_the_same(listed: Acl, user: str) -> None:
    inside = state().groups_of(user)
    rights = unix_rights(listed, user, GROUPS, inside)
    assert ordered(listed, GROUPS).rights(inside | {user}) == rights
    assert unixacl(state(), " ".join(f"{o.who}={''.join(o.rights)}" for o in listed.entries), user) == rights


def event() -> Event:
    return Event("e", "bob", FILE, {"text": None}, NOON, "main", 1, 1)


def may_publish(made: State, user: str) -> bool:
    try:
        admit(made, Draft("e", user, FILE, {}), now=NOON, predicates={})
    except PublishDenied:
        return False
    return True


# -- what the other form cannot say ---------------------------------------------------------------------------


def test_rules_cannot_say_everything_that_a_list_can() -> None:
    with pytest.raises(BadDefinition, match="the right `x` of `bob` is no action on events"):
        rules_of(parse_acl("bob=rx"), FILE)
    with pytest.raises(BadDefinition, match=r"`\*` is neither"):
        rules_of(parse_acl("*=r"), FILE)
    (rule,) = rules_of(parse_acl("bob=rx"), FILE, {"r": Action.SUBSCRIBE, "x": Action.AUDIT}, prefix="file")
    assert (rule.id, rule.who, rule.actions) == ("file-1", "bob", {Action.SUBSCRIBE, Action.AUDIT})


@pytest.mark.parametrize(
    "letters", [{"r": Action.PUBLISH, "w": Action.PUBLISH}, {"rw": Action.PUBLISH}, {"-": Action.AUDIT}]
)
def test_each_right_is_a_letter_and_an_action_of_its_own(letters: Mapping[str, Action]) -> None:
    for turn in (lambda: rules_of(Acl(), FILE, letters), lambda: acl_of((), letters)):
        with pytest.raises(BadDefinition):
            turn()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"where": parse_condition("text = 'x'")}, "has a condition"),
        ({"attributes": ("text",)}, "is for some attributes"),
        ({"attested": True, "actions": frozenset({Action.PUBLISH})}, "asks for an identity statement"),
        ({"who": "", "role": parse_role("Login.On(u)")}, "is for a role"),
        ({"source": Source.CHAIN}, "comes from a certificate"),
        ({"who": "two words"}, "a name that a list cannot write"),
        ({"who": ANYONE}, "is anyone in a list"),
    ],
)
def test_a_list_cannot_say_everything_that_rules_can(more: dict[str, object], said: str) -> None:
    rule = Rule(**{"id": "r", "who": "bob", "actions": frozenset({Action.SUBSCRIBE}), "type": FILE, **more})  # type: ignore[arg-type]
    with pytest.raises(BadDefinition, match=said):
        acl_of([rule])


def test_rules_about_other_actions_play_no_part() -> None:
    sees = Rule("r", "bob", frozenset({Action.SUBSCRIBE, Action.AUDIT}), FILE, effect=Effect.FORBID)
    looks = Rule("a", "bob", frozenset({Action.AUDIT}), FILE, parse_condition("text = 'x'"))
    assert render_acl(acl_of([looks, sees])) == "-bob=r"
