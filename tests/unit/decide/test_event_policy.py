"""Who sees an event by event policy: the direct reading against a plainer one, nulls, places, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decide.event_policy import answers, inlined, parameters, parameters_of
from headgate.decide.views import view
from headgate.lang.rolefile import parse_constraint, parse_event_policy, parse_representative, parse_rolefile
from headgate.model.changes import (
    AddMember,
    AddRow,
    AddRule,
    Change,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    DeclareType,
    EndCredential,
    GrantRole,
    RemoveGroup,
    RemoveRelation,
    RemoveRepresentative,
    RemoveRow,
    RetireType,
    SetEventPolicy,
    SetRepresentative,
    SetRolefile,
)
from headgate.model.errors import BadDefinition, HeadgateError, UnknownName, UnknownType
from headgate.model.events import Event
from headgate.model.expressions import TRUE, AllOf, Condition, Constant, RoleRef, Variable, variables
from headgate.model.limits import MAX_STATEMENTS
from headgate.model.rights import Action, Effect, Rule
from headgate.model.rolefiles import EventEntry, EventPolicy, EventTemplate
from headgate.model.state import ADMINISTRATOR, State
from headgate.model.types import EventType
from headgate.model.values import Kind
from strategies import rolestories
from strategies.rolestories import NOW, Story, World
from strategies.running import examples

SEEN, CLOSER = "badge.Seen", "badge.Closer"
TYPES = (
    DeclareType(EventType(SEEN, ADMINISTRATOR, {"badge": Kind.STRING, "room": Kind.STRING, "floor": Kind.INT})),
    DeclareType(EventType(CLOSER, ADMINISTRATOR, {"metres": Kind.INT}, SEEN)),
)


def site(*changes: Change, policy: str = "") -> Story:
    story = Story(
        *TYPES,
        *map(DeclarePrincipal, ("ann", "bob")),
        DeclareGroup("staff"),
        AddMember("staff", "ann"),
        DeclareRelation("Badge"),
        AddRow("Badge", ("b1", "ann")),
        AddRow("Badge", ("b2", "bob")),
        DeclareRelation("Above"),
        AddRow("Above", ("ann", "bob")),
        *changes,
    )
    return story.do(said(policy)) if policy else story


def said(text: str) -> SetEventPolicy:
    """A policy of these lines; one without credentials and condition may leave out `<=`."""
    lines = [line if "<=" in line else f"{line} <=" for line in text.splitlines()]
    return SetEventPolicy(parse_event_policy("\n".join(lines)))


def seen(type_name: str = SEEN, **values: Any) -> Event:
    given = {"badge": None, "room": None, "floor": None, **values}
    if type_name == CLOSER:
        given.setdefault("metres", None)
    return Event("e", "ann", type_name, given, NOW)


def truths(story: Story, who: str = "ann", counted: tuple[str, ...] | None = None, **values: Any) -> list[bool | None]:
    return [truth for _, truth in answers(story.state, who, seen(**values), counted)]


def attributes(story: Story, who: str = "ann", type_name: str = SEEN, **values: Any) -> set[str] | None:
    found = view(story.state, who, seen(type_name, **values), {})
    return None if found is None else set(found.attributes)


# -- a plainer reading --------------------------------------------------------------------------------------------
#
# Everything has a value here, and there are only two truths: an entry is true if some choice of credentials and some
# assignment of its variables, from all values that there are, makes everything it says true.

VALUES: tuple[Any, ...] = ("ann", "bob", 1, 2)
ATOMS = (
    *("u = s", "u != s", "u in staff", "Above(u, s)", "not Above(s, u)", "f > 1", "f in 1..1", "u in {'ann', 'x'}"),
    *("Above(u, _)", "Badge(u) = s", "s starts with 'a'", "d = 1", "u = s or d = f", "not (u in staff and d = 2)"),
    *("x = u and Above(x, s)", "y = Badge(u)", "x = f + 1 and (x = 2 or d = 1)", "u = x and x in staff"),
)


@st.composite
def entries(draw: st.DrawFn) -> str:
    args = [
        draw(st.sampled_from(options)) for options in (("u", "u", "u", "s", "'ann'", "_"), ("r", "s", "'bob'", "_"))
    ]
    args.append(draw(st.sampled_from(("f", "f", "d", "1"))))
    size = draw(st.integers(1, 3))
    roles = ("L.On(s)", "L.On(u)", "L.On('ann')", "L.On", "L.At(s, d)", "L.At(_, d)", "L.At(d)", "L.On(s) & L.At(u, d)")
    credentials = draw(st.sampled_from(roles))
    atoms = draw(st.lists(st.sampled_from(ATOMS), max_size=2))
    said = f" : {' and '.join(atoms)}" if atoms else ""
    return f"Seen({', '.join(args[:size])}) <= {credentials}{said}"


def plainly(entry: EventEntry, state: State, event: Event, held: list[tuple[str, tuple[Any, ...]]]) -> bool:
    given = [event.values[name] for name in ("badge", "room", "floor")]
    names = sorted(_names(entry))
    world = World(state.groups, state.relations, {}, [], frozenset(), ("", ""), {})
    for choice in product(held, repeat=len(entry.credentials)):
        for values in product((*VALUES, 3, "b1"), repeat=len(names)):
            env = dict(zip(names, values, strict=True))
            if _fits(entry.event.args, given, env) and all(
                ref.role == role and len(ref.args) <= len(args) and _fits(ref.args, args, env)
                for ref, (role, args) in zip(entry.credentials, choice, strict=True)
            ):
                found = rolestories.truth(entry.constraint, env, world)
                if found is True:
                    return True
    return False


def _fits(terms: tuple[Any, ...], values: Any, env: dict[str, Any]) -> bool:
    wanted = [env[t.name] if isinstance(t, Variable) and t.name != "_" else t for t in terms]
    pairs = zip(wanted, values, strict=False)
    return all(
        want == Variable("_") or rolestories.equal(want.value if isinstance(want, Constant) else want, got)
        for want, got in pairs
    )


def _names(entry: EventEntry) -> Iterator[str]:
    terms = [*entry.event.args, *(arg for ref in entry.credentials for arg in ref.args)]
    found = {one.name for one in terms if isinstance(one, Variable)} - {"_"}
    return iter(found | variables(entry.constraint))


@given(
    st.lists(entries(), min_size=1, max_size=3),
    st.lists(st.sampled_from([("On", ("ann",)), ("On", ("bob",)), ("At", ("ann", 1)), ("At", ("bob", 2))]), max_size=3),
    st.tuples(st.sampled_from(("ann", "bob", "b1")), st.sampled_from(("ann", "bob")), st.sampled_from((1, 2))),
)
@examples(120)
def test_an_entry_is_true_where_a_plainer_reading_says_so(
    lines: list[str], held: list[tuple[str, tuple[Any, ...]]], given: tuple[Any, ...]
) -> None:
    story = site(*(GrantRole(f"m{n}", "L", role, args, "ann") for n, (role, args) in enumerate(held)))
    event = seen(badge=given[0], room=given[1], floor=given[2])
    for line in lines:
        written = parse_event_policy(line)
        try:
            story.do(SetEventPolicy(written))
        except BadDefinition as refused:
            assert "a value" in str(refused)  # noqa: PT017 - some lines have variables that nothing says
            continue
        ((_, answer),) = answers(story.state, "ann", event, None)
        assert (answer is True) == plainly(written.entries[0], story.state, event, held), line


# -- nulls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "values", "answer"),
    [
        ("Seen('b1')", {"badge": "b1"}, True),
        ("Seen('b1')", {"badge": "b2"}, False),
        ("Seen('b1')", {}, None),
        ("Seen(x, x)", {"badge": "a", "room": "a"}, True),
        ("Seen(x, x)", {"badge": "a", "room": "b"}, False),
        ("Seen(x, x)", {"badge": "a"}, None),
        ("Seen(x, x)", {}, None),
        ("Seen(_, _)", {}, True),
        ("Seen(b)", {}, True),
        ("Seen(b, 'T1', 3)", {"room": "T2"}, False),
        ("Seen(s) <= L.On(s)", {"badge": "ann"}, True),
        ("Seen(s) <= L.On(s)", {"badge": "bob"}, False),
        ("Seen(s) <= L.On(s)", {}, None),
        ("Seen(s) <= L.Off(s)", {}, False),
        ("Seen(b) <= L.On", {}, True),
        ("Seen(b) <= L.On(u, x)", {}, False),
        ("Seen(s) <= L.On(s) & L.Off(s)", {"badge": "ann"}, False),
        ("Seen(s) <= L.On('bob')", {}, False),
        ("Seen(s) <= L.On('ann')", {}, True),
        ("Seen(b) <= L.On(s) : b = s", {}, None),
        ("Seen(b) <= L.On(s) : b = s or s = 'ann'", {}, True),
        ("Seen(b) <= L.On(s) : b = s and s = 'bob'", {}, False),
        ("Seen(b) <= : not b = 'x'", {}, None),
        ("Seen(b) <= : b in staff", {}, None),
        ("Seen(b) <= : Above(b, _)", {}, None),
        ("Seen(b) <= : Badge(b) = 'ann'", {"badge": "b1"}, True),
        ("Seen(b) <= : Badge(b) = 'ann'", {"badge": "b9"}, None),
        ("Seen(b) <= : x = Badge(b)", {"badge": "b1"}, True),
        ("Seen(b) <= : x = Badge(b)", {"badge": "b9"}, None),
        ("Seen(b, r) <= : x = Badge(b) and (x = 'ann' or r = 'T1')", {"badge": "b9", "room": "T1"}, None),
        ("Seen(b, r) <= : x = Badge(b) and (x = 'ann' or r = 'T1')", {"badge": "b2", "room": "T1"}, True),
        ("Seen(b, r, f) <= : x = f + 1 and x in 2..3", {"floor": 1}, True),
        ("Seen(b, r, f) <= : x = f + 1 and x in 2..3", {}, None),
        ("Seen(b) <= L.On(s) : @time < timestamp '2027-01-01T00:00:00Z'", {}, True),
    ],
)
def test_an_entry_with_nulls(entry: str, values: dict[str, Any], answer: bool | None) -> None:
    story = site(GrantRole("m", "L", "On", ("ann",), "ann"), policy=entry)
    assert truths(story, **values) == [answer]


def test_what_is_unknown_gives_nothing_and_an_unknown_negative_entry_forbids() -> None:
    positive = site(policy="Seen('b1')")
    assert attributes(positive, badge="b1") == {"badge", "room", "floor"}
    assert attributes(positive) is None
    negative = site(policy="-Seen('b1')\nSeen(_)")
    assert attributes(negative, badge="b2") == {"badge", "room", "floor"}
    assert attributes(negative) is None
    assert attributes(negative, badge="b1") is None


# -- order, kinds of entries, who counts --------------------------------------------------------------------------


def test_the_first_entry_that_holds_decides() -> None:
    assert attributes(site(policy="Seen(_, 'T1')\n-Seen(_)"), room="T1") is not None
    assert attributes(site(policy="Seen(_, 'T1')\n-Seen(_)"), room="T2") is None
    assert attributes(site(policy="-Seen(_)\nSeen(_, 'T1')"), room="T1") is None


def test_an_entry_takes_in_subtypes_with_the_attributes_of_its_own_type() -> None:
    story = site(policy="Seen(b)")
    assert attributes(story, type_name=CLOSER, badge="b1", metres=3) == {"badge", "room", "floor"}
    assert attributes(site(policy="Closer(b)"), badge="b1") is None
    both = site(policy="Seen(b, 'T1')\nCloser(b)")
    assert attributes(both, type_name=CLOSER, room="T1") == {"badge", "room", "floor", "metres"}
    assert attributes(site(policy="-Seen(b)\nCloser(b)"), type_name=CLOSER) is None


def test_rules_come_before_event_policy() -> None:
    rule = Rule("no", "ann", frozenset({Action.SUBSCRIBE}), SEEN, TRUE, effect=Effect.FORBID)
    assert attributes(site(AddRule(rule), policy="Seen(b)")) is None
    assert attributes(site(AddRule(rule), policy="Seen(b)"), who="bob") is not None


def test_only_what_is_counted_counts_and_only_while_it_is_held() -> None:
    grants = [GrantRole("a", "L", "On", ("ann",), "ann"), GrantRole("b", "L", "On", ("bob",), "ann")]
    story = site(*grants, policy="Seen(s) <= L.On(s)")
    assert truths(story, badge="bob") == [True]
    assert truths(story, counted=("a",), badge="bob") == [False]
    assert truths(story, counted=("b", "gone"), badge="bob") == [True]
    assert truths(story, counted=(), badge="bob") == [False]
    assert truths(story, who="bob", badge="bob") == [False]
    assert truths(story.do(EndCredential("b")), badge="bob") == [False]


def test_no_credentials_means_everyone_even_who_counts_none() -> None:
    assert truths(site(policy="Seen(s)"), counted=()) == [True]


def test_a_credential_of_an_instance() -> None:
    doc = GrantRole("m", "Doc", "Author", ("ann",), "ann", "thesis")
    for text, answer in (
        *(("Doc.Author(u)", False), ("Doc['thesis'].Author(u)", True), ("Doc['x'].Author(u)", False)),
        *(("Doc[_].Author(u)", True), ("Doc[i].Author(u)", True)),
    ):
        assert truths(site(doc, policy=f"Seen(b) <= {text}")) == [answer]


def test_one_variable_in_two_credentials_is_one_value() -> None:
    held = [GrantRole("a", "L", "On", ("ann",), "ann"), GrantRole("b", "L", "In", ("bob",), "ann")]
    assert truths(site(*held, policy="Seen(b) <= L.On(u) & L.In(u)")) == [False]
    assert truths(site(*held, policy="Seen(b) <= L.On(u) & L.In(v)")) == [True]
    held.append(GrantRole("c", "L", "In", ("ann",), "ann"))
    assert truths(site(*held, policy="Seen(b) <= L.On(u) & L.In(u)")) == [True]


# -- representatives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "places"),
    [
        ({}, ["badge", "room", "floor"]),
        ({"user": "Badge(badge)"}, ["user", "room", "floor"]),
        ({"up": "floor + 1"}, ["badge", "room", "up"]),
        ({"both": "Above(room, badge)"}, ["both", "floor"]),
        ({"one": "Badge(room)", "two": "Badge(badge)"}, ["two", "one", "floor"]),
        ({"one": "Badge(badge)", "two": "Above(badge)"}, ["one", "two", "room", "floor"]),
        ({"always": "'x'"}, ["badge", "room", "floor", "always"]),
        ({"room": "Badge(badge)"}, ["room", "floor"]),
    ],
)
def test_a_parameter_stands_where_the_first_of_its_attributes_stood(made: dict[str, str], places: list[str]) -> None:
    one = parse_representative(SEEN, made)
    assert [name for name, _ in parameters_of(one, ("badge", "room", "floor"))] == places
    if made:
        assert [name for name, _ in parameters(site(SetRepresentative(one)).state, SEEN)] == places


def test_a_representative_is_what_a_template_is_compared_with() -> None:
    made = parse_representative("Seen", {"user": "Badge(badge)"})
    story = site(SetRepresentative(made), GrantRole("m", "L", "On", ("ann",), "ann"), policy="Seen(u, r) <= L.On(u)")
    assert [truths(story, badge=badge) for badge in ("b1", "b2", "b9", None)] == [[True], [False], [None], [None]]
    story.do(AddRow("Badge", ("b2", "ann")))  # two holders are none
    assert truths(story, badge="b2") == [None]
    story.do(RemoveRow("Badge", ("b2", "bob")))
    assert truths(story, badge="b2") == [True]
    assert truths(story.do(RemoveRepresentative(SEEN)), badge="ann") == [True]


def test_a_type_is_not_seen_otherwise_while_the_policy_would_not_fit() -> None:
    story = site(policy="Seen(b, r, f) <= : f > 1")
    with pytest.raises(BadDefinition, match="2 parameters, not 3"):
        story.do(SetRepresentative(parse_representative(SEEN, {"both": "Above(badge, room)"})))
    more = parse_representative(SEEN, {"up": "'x'"})
    story.do(SetRepresentative(more), said("Seen(b, r, f, 'x')"))
    with pytest.raises(BadDefinition):
        story.do(RemoveRepresentative(SEEN))
    assert truths(story) == [True]


# -- acceptance ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("Nothing(u)", UnknownType, "no event type `Nothing`"),
        ("Seen(a, b, c, d)", BadDefinition, "3 parameters, not 4"),
        ("Seen(b) <= : x > 1", BadDefinition, "nothing gives `x` a value"),
        ("Seen(b) <= : x = y and y = x", BadDefinition, "a value"),
        ("Seen(b) <= : x = y", BadDefinition, "a value"),
        ("Seen(b) <= : (x = b or b = 'x') and x = 'y' or x = b", BadDefinition, "nothing gives `x` a value"),
        ("Seen(b) <= : b in nowhere", UnknownName, "no group `nowhere`"),
        ("Seen(b) <= : Nothing(b)", UnknownName, "no relation or function `Nothing`"),
        ("Seen(b) <= : Nothing(b) = 1", UnknownName, "no relation or function `Nothing`"),
        ("Seen(b) <= : Badge(Nothing(b)) = 1", UnknownName, "no relation or function `Nothing`"),
        ("Seen(b) <= : count(L.On(_)) > 1", BadDefinition, "not counted"),
        ("Seen(b) <= : b = @client", BadDefinition, "`@client` has no meaning"),
        ("Seen(b) <= L.On(@client)", BadDefinition, "no meaning in a credential"),
        ("Seen(b) <= L[@instance].On(b)", BadDefinition, "no meaning in a credential"),
        ("Seen(b) <= L[i].On(u) & M[i].On(v)", BadDefinition, "stands for an instance"),
        ("Seen(i) <= L[i].On(u)", BadDefinition, "stands for an instance"),
        ("Seen(b) <= L[i].On(u) : i = 'x'", BadDefinition, "stands for an instance"),
        ("Seen(b) <= : unixacl('ann=r', b) = {r}", None, ""),
        ("Seen(b) <= L.On(x, y, z, w)", None, ""),
        ("Seen(b) <= : b = x and x in staff", None, ""),
    ],
)
def test_what_is_accepted_and_what_is_refused(text: str, error: type[HeadgateError] | None, words: str) -> None:
    story = site()
    if error is None:
        assert len(story.do(said(text)).state.roles.policy.entries) == 1
        return
    with pytest.raises(error) as refused:
        story.do(said(text))
    assert words in str(refused.value)
    assert not story.state.roles.policy.entries


def test_a_star_has_no_meaning() -> None:
    for text in ("(b in staff)*", "b = 'x' or not (b in staff)*"):
        entry = EventEntry(EventTemplate(SEEN, (Variable("b"),)), (), parse_constraint(text))
        with pytest.raises(BadDefinition, match="star"):
            site().do(SetEventPolicy(EventPolicy((entry,))))


def test_names_that_several_have_are_asked_for_in_full() -> None:
    again = DeclareType(EventType("door.Seen", ADMINISTRATOR, {"badge": Kind.STRING}))
    with pytest.raises(UnknownType, match="may be"):
        site(again, policy="Seen(b)")
    assert truths(site(again, policy="badge.Seen(b)")) == [True]
    rolefiles = [SetRolefile(name, parse_rolefile("def On(u) u : String")) for name in ("L", "M")]
    with pytest.raises(BadDefinition, match="name the service"):
        site().do(*rolefiles).do(SetEventPolicy(parse_event_policy("Seen(b) <= On(b)")))
    story = site().do(rolefiles[0]).do(SetEventPolicy(parse_event_policy("Seen(b) <= On(b)")))
    assert story.state.roles.policy.entries[0].credentials == (RoleRef("On", (Variable("b"),), "L"),)


def test_limits_of_a_policy() -> None:
    entry = EventEntry(EventTemplate(SEEN))
    with pytest.raises(BadDefinition, match="MAX_STATEMENTS"):
        site().do(SetEventPolicy(EventPolicy((entry,) * (MAX_STATEMENTS + 1))))
    doubling = " and ".join(f"x{n + 1} = x{n} + x{n}" for n in range(1, 40))
    with pytest.raises(BadDefinition, match="MAX_INLINED"):
        site(policy=f"Seen(b, r, f) <= : x1 = f and {doubling} and x40 > 1")
    longest = " and ".join(f"x{n + 1} = x{n}" for n in range(1, 300))
    assert truths(site(policy=f"Seen(b, r, f) <= : x1 = f and {longest} and x300 > 1"), floor=2) == [True]


@pytest.mark.parametrize(
    ("text", "put"),
    [
        ("x = b and x in staff", "b in staff"),
        ("b = x and x in staff", "b in staff"),
        ("x = Badge(b) and y = Badge(x) and y = 'c'", "Badge(Badge(b)) = 'c'"),
        ("y = Badge(x) and x = Badge(b) and y = 'c'", "Badge(Badge(b)) = 'c'"),
        ("x = Badge(b)", "Badge(b) = Badge(b)"),
        ("x = Badge(b) and not x = 'c'", "not Badge(b) = 'c'"),
        ("x = 1 and x = 2", "1 = 2"),
        ("x = b or x in staff", "x = b or x in staff"),
        ("b = 'c'", "b = 'c'"),
    ],
)
def test_what_is_defined_is_put_in_its_places(text: str, put: str) -> None:
    found = inlined(parse_constraint(text), frozenset({"b"}))
    expected: Condition = parse_constraint(put)
    assert found == expected
    assert found != AllOf()


# -- what the policy names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "change"),
    [
        ("Seen(b) <= : b in staff", RemoveGroup("staff")),
        ("Seen(b) <= : Badge(b, _)", RemoveRelation("Badge")),
        ("Seen(b) <= : not (b = 'x' or Badge(b) = 'y')", RemoveRelation("Badge")),
    ],
)
def test_a_group_or_relation_in_use_stays(policy: str, change: Change) -> None:
    story = site(policy=policy)
    with pytest.raises(BadDefinition, match="the event policy names"):
        story.do(change)
    assert story.do(SetEventPolicy(EventPolicy())).do(change).state.version


def test_a_relation_of_a_representative_stays() -> None:
    story = site(SetRepresentative(parse_representative(SEEN, {"user": "Badge(badge)"})))
    with pytest.raises(BadDefinition, match="the event policy names"):
        story.do(RemoveRelation("Badge"))
    assert story.do(RemoveRepresentative(SEEN)).do(RemoveRelation("Badge")).state.version
    with pytest.raises(UnknownName):
        story.do(RemoveRepresentative(SEEN))


def test_a_group_or_relation_of_a_rolefile_stays() -> None:
    story = site().rolefile("A(u) <- L.On(u) : u in staff and Above(u, _)")
    for change in (RemoveGroup("staff"), RemoveRelation("Above")):
        with pytest.raises(BadDefinition, match="the rolefile of `S` names"):
            story.do(change)


def test_entries_of_a_retired_type_go_with_it() -> None:
    story = site(SetRepresentative(parse_representative(CLOSER, {"up": "metres + 1"})), policy="Closer(b)\nSeen(b)")
    story.do(RetireType(CLOSER))
    assert [one.event.type for one in story.state.roles.policy.entries] == [SEEN]
    assert not story.state.roles.representatives


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"user": "Badge(nothing)"}, "which `badge.Seen` lacks"),
        ({"user": "Nothing(badge)"}, "no relation or function"),
        ({"user": "count(L.On)"}, "not counted"),
        ({"user": "@client"}, "no meaning"),
    ],
)
def test_a_representative_is_made_of_what_there_is(made: dict[str, str], words: str) -> None:
    with pytest.raises(HeadgateError) as refused:
        site(SetRepresentative(parse_representative(SEEN, made)))
    assert words in str(refused.value)
