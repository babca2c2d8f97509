"""What is asked of a role service: stories of entering, electing, revoking and changing the rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headgate.lang.rolefile import parse_role
from headgate.model.changes import (
    AddMember,
    AddRow,
    DeclareGroup,
    DeclarePrincipal,
    DeclareRelation,
    EndCredential,
    EnterRole,
    GrantRole,
    PassRevocation,
    RemoveMember,
    RemoveRow,
    SetRolefile,
    Tick,
    WatchRecords,
)
from headgate.model.errors import BadDefinition, NotFound, RoleDenied, UnknownName
from strategies.rolestories import NOW, Story, later

PEOPLE = ("ann", "bob", "cat", "dan")


def told(*lines: str, staff: tuple[str, ...] = ()) -> Story:
    """People who are logged on, a group and a rolefile."""
    story = Story(
        *(DeclarePrincipal(name) for name in PEOPLE),
        DeclareGroup("staff"),
        DeclareRelation("finalised"),
        *(AddMember("staff", name) for name in staff),
        *(GrantRole(f"{name}-on", "L", "On", (name,), name) for name in PEOPLE),
    )
    return story.rolefile(*lines) if lines else story


def failure(refused: pytest.ExceptionInfo[RoleDenied]) -> Any:
    return refused.value.failure


# -- figure 3.1 and stars -----------------------------------------------------------------------------------------

CONFERENCE = ("Chair <- L.On('ann')*", "Member(u) <- L.On(u)* <|* Chair : (u in staff)*")


def conference() -> Story:
    story = told(*CONFERENCE, staff=("bob",)).enter("chair", "ann", "Chair").elect("e", "ann", "Member", "bob")
    return story.enter("m", "bob", "Member", using=("bob-on", "e"))


def test_of_figure_3_1_the_chair_elects_a_member_of_staff() -> None:
    story = conference()
    assert "m" in story
    assert story.args("m") == ("bob",)
    assert "n" in story.enter("n", "bob", "Member")  # whatever stands that may elect is accepted by entering
    with pytest.raises(RoleDenied):
        story.enter("o", "bob", "Member", using=("bob-on",))
    with pytest.raises(RoleDenied):
        story.enter("o", "cat", "Member", using=("cat-on", "e"))


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (RemoveMember("staff", "bob"), "`'bob' in staff` no longer holds"),
        (EndCredential("e", "ann"), "it rested on `e`"),
        (EndCredential("bob-on", "bob"), "it rested on `bob-on`: its holder left"),
    ],
)
def test_a_member_falls_with_any_of_its_three_stars(what: Any, reason: str) -> None:
    story = conference().do(what)
    assert "m" not in story
    assert story.reasons["m"] == reason


def test_what_was_lost_is_regained_only_by_entering_again() -> None:
    story = conference().do(RemoveMember("staff", "bob")).do(AddMember("staff", "bob"))
    assert "m" not in story
    assert "n" in story.enter("n", "bob", "Member", using=("bob-on", "e"))


@pytest.mark.parametrize(
    ("elector", "by_wish", "by_office"),
    [("<| Chair", True, True), ("<|* Chair", False, True), ("<| Chair*", True, False), ("<|* Chair*", False, False)],
)
def test_the_star_of_the_wish_and_the_star_of_the_office(elector: str, by_wish: bool, by_office: bool) -> None:
    def entered() -> Story:
        story = told("Chair <- L.On('ann')*", f"Member(u) <- L.On(u) {elector}").enter("chair", "ann", "Chair")
        return story.elect("e", "ann", "Member").enter("m", "bob", "Member", using=("bob-on", "e"))

    assert ("m" in entered().end("e", "ann")) is by_wish
    assert ("m" in entered().end("chair", "ann")) is by_office
    assert "m" in entered().end("bob-on")


def test_an_elector_that_has_left_may_have_elected_unless_the_office_is_starred() -> None:
    for elector, counts in (("<| Chair", True), ("<| Chair*", False)):
        story = told("Chair <- L.On('ann')*", f"Member(u) <- L.On(u) {elector}").enter("chair", "ann", "Chair")
        story.elect("e", "ann", "Member").end("chair")
        if counts:
            assert "m" in story.enter("m", "bob", "Member", using=("bob-on", "e"))
        else:
            with pytest.raises(RoleDenied):
                story.enter("m", "bob", "Member", using=("bob-on", "e"))


def test_what_needs_the_elector_to_stay_gives_way_to_what_does_not() -> None:
    story = told("Chair <- L.On('ann')", "In('held') <- L.On(u) <| Chair*", "In('free') <- L.On(u) <| Chair")
    story.enter("chair", "ann", "Chair").elect("e", "ann", "In").elect("f", "ann", "In")
    assert story.enter("i", "bob", "In", using=("bob-on", "e")).args("i") == ("held",)
    assert story.end("chair").enter("j", "bob", "In", using=("bob-on", "f")).args("j") == ("free",)
    assert "i" not in story


# -- elections ----------------------------------------------------------------------------------------------------


def test_required_roles_say_whom_an_election_is_for() -> None:
    story = told(*CONFERENCE, staff=("bob", "cat")).enter("chair", "ann", "Chair")
    story.elect("e", "ann", "Member", required=(parse_role("L.On('bob')"),))
    with pytest.raises(RoleDenied):
        story.enter("m", "cat", "Member", using=("cat-on", "e"))
    assert "m" in story.enter("m", "bob", "Member", using=("bob-on", "e"))


def test_an_election_names_what_its_candidate_becomes() -> None:
    story = told("Chair <- L.On('ann')", "Rank(u, n) <- L.On(u) <| Chair : n > 0")
    story.enter("chair", "ann", "Chair").elect("e", "ann", "Rank", None, 2)
    with pytest.raises(RoleDenied):
        story.enter("r", "bob", "Rank", "bob", 1, using=("bob-on", "e"))
    assert story.enter("r", "bob", "Rank", "bob", 2, using=("bob-on", "e")).args("r") == ("bob", 2)


def test_revoke_on_exit() -> None:
    story = told("Chair <- L.On('ann')*", "Member(u) <- L.On(u) <|* Chair").enter("chair", "ann", "Chair")
    story.elect("stays", "ann", "Member").elect("goes", "ann", "Member", revoke_on_exit=True)
    story.enter("m", "bob", "Member", using=("bob-on", "stays")).enter("n", "cat", "Member", using=("cat-on", "goes"))
    story.end("ann-on", "ann")
    assert story.state.roles.elections.keys() == {"stays"}
    assert "m" in story
    assert "n" not in story


def test_until() -> None:
    story = told("Chair <- L.On('ann')*", "Member(u) <- L.On(u) <|* Chair").enter("chair", "ann", "Chair")
    story.elect("e", "ann", "Member", until=later(10)).enter("m", "bob", "Member", using=("bob-on", "e"))
    story.do(GrantRole("short", "L", "On", ("cat",), "cat", until=later(20)))
    assert "m" in story.do(Tick(later(9)))
    story.do(Tick(later(10)))
    assert "m" not in story
    assert story.reasons["e"] == "its time is over"
    assert "short" in story
    assert "short" not in story.do(Tick(later(21)))
    with pytest.raises(BadDefinition, match="over at once"):
        story.elect("f", "ann", "Member", until=NOW)


def test_quorum_by_two_credentials_and_any_of_the_electors_may_end_it() -> None:
    golf = (
        "Recommended(p, x) <- L.On(p)* <|* Member(x)",
        "Member(p) <- Recommended(p, x)* & Recommended(p, y)* : x != y",
    )
    story = told(*golf, "def Member(p) p : String")
    story.do(GrantRole("ann-in", "S", "Member", ("ann",), "ann"), GrantRole("bob-in", "S", "Member", ("bob",), "bob"))
    story.elect("e", "ann", "Recommended", "cat", None).elect("f", "bob", "Recommended", "cat", None)
    story.elect("g", "ann", "Recommended", "cat", None)
    with pytest.raises(RoleDenied):
        story.enter("m", "cat", "Member", using=("cat-on", "e", "g"))
    story.enter("m", "cat", "Member", using=("cat-on", "e", "f"))
    assert "m" not in story.end("f", "bob")
    assert story.state.roles.memberships.keys() >= {"ann-in", "bob-in", "cat-on"}


def test_quorum_by_two_electors() -> None:
    story = told("Member(p) <- L.On(p)* <|* Chief(x) <|* Chief(y) : x != y", "Chief(u) <- L.On(u)")
    story.enter("a", "ann", "Chief").enter("b", "bob", "Chief")
    story.elect("e", "ann", "Member").elect("f", "ann", "Member").elect("g", "bob", "Member")
    with pytest.raises(RoleDenied):
        story.enter("m", "cat", "Member", using=("cat-on", "e", "f"))
    assert "m" in story.enter("m", "cat", "Member", using=("cat-on", "e", "g"))
    assert "m" not in story.end("e", "ann")


def test_recursive_delegation_ten_deep_falls_at_the_root_in_one_version() -> None:
    names = [f"p{number}" for number in range(11)]
    story = Story(
        *(DeclarePrincipal(name) for name in names), *(GrantRole(f"{n}-on", "L", "On", (n,), n) for n in names)
    )
    story.rolefile("Member(u) <- L.On(u) : u = 'p0'", "Member(u) <- L.On(u) <|* Member*").enter("m0", "p0", "Member")
    for number in range(1, 11):
        story.elect(f"e{number}", f"p{number - 1}", "Member", using=(f"m{number - 1}",))
        story.enter(f"m{number}", f"p{number}", "Member", using=(f"p{number}-on", f"e{number}"))
    before = story.state.version
    story.end("m0", "p0")
    assert story.state.version == before + 1
    assert [id for id in story.state.roles.memberships if id.startswith("m")] == []
    assert story.reasons["m10"] == "it rested on `m9`"


def test_the_right_to_revoke_goes_only_to_others_in_the_office_and_counts_while_they_are() -> None:
    story = told("Chair <- L.On(u)* : u in {'ann', 'cat'}", "Member(u) <- L.On(u) <|* Chair").enter("a", "ann", "Chair")
    story.elect("e", "ann", "Member").enter("m", "bob", "Member", using=("bob-on", "e"))
    with pytest.raises(RoleDenied) as refused:
        story.end("e", "cat")
    assert failure(refused) == "misuse"
    with pytest.raises(RoleDenied, match="does not hold"):
        story.do(PassRevocation("e", "ann", "cat"))
    story.enter("c", "cat", "Chair")
    with pytest.raises(RoleDenied):
        story.do(PassRevocation("e", "bob", "cat"))
    story.do(PassRevocation("e", "ann", "cat")).end("c", "cat")
    with pytest.raises(RoleDenied):
        story.end("e", "cat")
    story.enter("c2", "cat", "Chair").end("a", "ann")
    with pytest.raises(RoleDenied):  # the elector itself is no longer in office
        story.end("e", "ann")
    assert "m" not in story.end("e", "cat")
    with pytest.raises(NotFound):
        story.do(PassRevocation("e", "ann", "cat"))


# -- constraints with stars ---------------------------------------------------------------------------------------


def test_a_star_on_what_is_denied() -> None:
    story = told("Rights({ae}) <- L.On(u) : not finalised()*", "Rights({a}) <- L.On(u)", "def Rights(r) r : {eaf}")
    story.enter("r", "ann", "Rights")
    assert story.args("r") == (frozenset("ae"),)
    story.do(AddRow("finalised", ("thesis",)))
    assert "r" not in story
    assert story.reasons["r"] == "`finalised()` holds now"
    assert story.enter("s", "ann", "Rights").args("s") == (frozenset("a"),)
    assert "s" in story.do(RemoveRow("finalised", ("thesis",)))


@pytest.mark.parametrize(
    ("constraint", "after_staff", "after_row", "after_both"),
    [
        ("(u in staff or Above(u, 'x'))*", True, True, False),
        ("u in staff* or Above(u, 'x')*", True, True, False),
        ("u in staff* or Above(u, 'x')", True, True, True),
        ("u in staff* and Above(u, 'x')", False, True, False),
        ("u in staff and Above(u, 'x')*", True, False, False),
        ("(u in staff and Above(u, 'x'))*", False, False, False),
        ("u in staff and Above(u, 'x')", True, True, True),
        ("not (not u in staff* or not Above(u, 'x'))", False, True, False),
        ("not (not u in staff or not Above(u, 'x')*)", True, False, False),
        ("u in staff* or Above(u, 'y')", False, True, False),
        ("Above(u, z)*", True, False, False),
        ("z = Above(u)*", True, False, False),
    ],
)
def test_mixtures_of_what_is_starred_and_what_is_not(
    constraint: str, after_staff: bool, after_row: bool, after_both: bool
) -> None:
    def stays(*changes: Any) -> bool:
        story = told(staff=("ann",)).do(DeclareRelation("Above"), AddRow("Above", ("ann", "x")))
        return "a" in story.rolefile(f"A(u) <- L.On(u) : {constraint}").enter("a", "ann", "A").do(*changes)

    off_staff, no_row = RemoveMember("staff", "ann"), RemoveRow("Above", ("ann", "x"))
    assert stays(off_staff) is after_staff
    # A look-up without a row is unknown, and not known to have failed: it grants nothing, but may heal.
    assert stays(no_row) is after_row
    assert stays(off_staff, no_row) is after_both


@pytest.mark.parametrize("star", ["", "*"])
def test_separation_of_duty(star: str) -> None:
    story = told(f"Payer(u) <- L.On(u) : (not Orderer(u)){star}", f"Orderer(u) <- L.On(u) : (not Payer(u)){star}")
    story.enter("p", "ann", "Payer")
    with pytest.raises(RoleDenied):
        story.enter("o", "ann", "Orderer")
    assert "o" in story.enter("o", "bob", "Orderer")
    story.do(GrantRole("x", "S", "Orderer", ("ann",), "ann"))
    assert ("p" in story) is not bool(star)
    assert "o" in story


def test_cardinality() -> None:
    story = told("Key(u) <- L.On(u) : count(Key(_)) < 2").enter("a", "ann", "Key").enter("b", "bob", "Key")
    with pytest.raises(RoleDenied):
        story.enter("c", "cat", "Key")
    assert "c" in story.end("a").enter("c", "cat", "Key")


def test_a_starred_count_is_of_all_with_the_new_one_among_them() -> None:
    story = told("Key(u) <- L.On(u) : (count(Key(_)) <= 2)*").enter("a", "ann", "Key").enter("b", "bob", "Key")
    with pytest.raises(RoleDenied, match="would end as soon as it was entered"):
        story.enter("c", "cat", "Key")
    assert list(story.state.roles.memberships)[-2:] == ["a", "b"]
    story.do(GrantRole("d", "S", "Key", ("dan",), "dan"))
    assert [id for id in ("a", "b", "d") if id in story] == ["d"]


def test_a_count_waits_for_the_values_of_its_variables() -> None:
    for text in ("count(In(d, _)) < 1 and Works(u, d)", "Works(u, d) and count(In(d, _)) < 1"):
        story = told().do(DeclareRelation("Works"), AddRow("Works", ("ann", "it")), AddRow("Works", ("bob", "law")))
        story.rolefile("In(d, u) <- L.On(u) : Works(u, d)", f"First(d) <- L.On(u) : {text}").enter("i", "bob", "In")
        assert story.enter("f", "ann", "First").args("f") == ("it",)
        with pytest.raises(RoleDenied):
            story.enter("g", "bob", "First")


def test_a_look_up_has_one_value_or_none() -> None:
    story = told().do(DeclareRelation("Of"), AddRow("Of", ("ann", 1))).rolefile("A(x) <- L.On(u) : x = Of(u)")
    assert story.enter("a", "ann", "A").args("a") == (1,)
    with pytest.raises(RoleDenied):
        story.do(AddRow("Of", ("ann", 2))).enter("b", "ann", "A")


def test_what_functions_say_is_followed() -> None:
    acl = "'ann=rwx staff=r other='"
    story = told(f"Use(r) <- L.On(u) : r = unixacl({acl}, u)*", "def Use(r) r : {rwx}", staff=("bob",))
    story.enter("a", "ann", "Use").enter("b", "bob", "Use")
    assert (story.args("a"), story.args("b")) == ((frozenset("rwx"),), (frozenset("r"),))
    story.do(RemoveMember("staff", "bob"))
    assert "a" in story
    assert "b" not in story


def test_a_monitored_function_of_a_service_is_asked_again() -> None:
    def crowded(known: Any, most: int) -> bool:
        return len(known.members("staff")) > most

    crowded.monitored = True  # type: ignore[attr-defined]
    names = [DeclarePrincipal(name) for name in PEOPLE]
    story = Story(*names, DeclareGroup("staff"), functions={"crowded": crowded})
    story.grant("on", "ann", "On", "ann").rolefile("A(u) <- L.On(u) : not crowded(1)*").enter("a", "ann", "A")
    assert "a" in story.do(AddMember("staff", "cat"))
    assert "a" not in story.do(AddMember("staff", "dan"))


# -- revocation by role -------------------------------------------------------------------------------------------


def test_hire_fire_and_hire_again() -> None:
    story = told("Employee(p, d) <- L.On(p)* & L.Hired(p, d) |>* Manager(d)", "def Manager(d) d : String")
    story.grant("h", "ann", "Hired", "ann", "it").enter("e", "ann", "Employee")
    story.do(GrantRole("law", "S", "Manager", ("law",), "bob"), GrantRole("it", "S", "Manager", ("it",), "cat"))
    with pytest.raises(RoleDenied) as refused:
        story.revoke("bob", "Employee", "ann", "it")
    assert failure(refused) == "credentials"
    story.revoke("cat", "Employee", "ann", "it")
    assert story.reasons["e"] == "`S.Employee('ann', 'it')` was revoked by `Manager`"
    with pytest.raises(RoleDenied) as refused:
        story.enter("f", "ann", "Employee")
    assert failure(refused) == "revocation"
    with pytest.raises(RoleDenied):
        story.reinstate("bob", "Employee", "ann", "it")
    story.reinstate("cat", "Employee", "ann", "it")
    assert "e" not in story
    assert "f" in story.enter("f", "ann", "Employee")


def test_a_revoker_without_a_star_bars_and_removes_nobody() -> None:
    story = told("In(u) <- L.On(u) |> Chair", "Chair <- L.On('ann')").enter("c", "ann", "Chair").enter("i", "bob", "In")
    assert "i" in story.revoke("ann", "In", "bob")
    with pytest.raises(RoleDenied):
        story.enter("j", "bob", "In")


def test_statements_with_other_revokers() -> None:
    lines = ("In(u) <- L.On(u) & L.Wed |>* Chair", "In(u) <- L.On(u) |>* Guard", "In(u) <- L.On(u) & L.Key")
    story = told(*lines, "Chair <- L.On('ann')", "Guard <- L.On('cat')").enter("c", "ann", "Chair")
    story.enter("g", "cat", "Guard").grant("w", "bob", "Wed").enter("first", "bob", "In")
    story.enter("second", "bob", "In", using=("bob-on",))
    story.revoke("cat", "In", "bob")
    assert "first" in story
    assert "second" not in story
    with pytest.raises(RoleDenied):  # revoked by one, entered by no statement with a revoker
        story.enter("third", "bob", "In")
    assert "third" in story.grant("k", "bob", "Key").enter("third", "bob", "In")
    with pytest.raises(RoleDenied):
        story.revoke("bob", "In", "bob")
    story.revoke("ann", "In", "bob")
    assert "first" not in story
    assert "third" in story


def test_whoever_may_revoke_now_lifts_what_a_revoker_did_who_is_named_no_more() -> None:
    story = told("In(u) <- L.On(u) |>* Chair", "Chair <- L.On('ann')").enter("c", "ann", "Chair")
    story.revoke("ann", "In", "bob").rolefile("In(u) <- L.On(u) |>* Guard", "Guard <- L.On('cat')")
    story.enter("g", "cat", "Guard")
    with pytest.raises(RoleDenied):
        story.enter("i", "bob", "In")
    assert "i" in story.reinstate("cat", "In", "bob").enter("i", "bob", "In")


# -- instances ----------------------------------------------------------------------------------------------------


def test_instances_are_apart() -> None:
    story = told(
        "Author <- L.On(u) : Of(@instance, u)*".replace("Of", "finalised"), "Reader <- Author*", "Sees <- Author"
    )
    story.do(AddRow("finalised", ("a", "ann")), AddRow("finalised", ("b", "bob")))
    story.enter("x", "ann", "Author", instance="a")
    with pytest.raises(RoleDenied):
        story.enter("y", "ann", "Author", instance="b")
    story.enter("r", "ann", "Reader", instance="a", using=("x",))
    with pytest.raises(RoleDenied):
        story.enter("s", "ann", "Reader", instance="b", using=("x",))
    assert story.do(RemoveRow("finalised", ("b", "bob"))).state_of("r") is True
    assert "r" not in story.do(RemoveRow("finalised", ("a", "ann")))


def test_a_credential_of_another_service_names_its_instance() -> None:
    story = told("A <- Doc['a'].Author", "Any(i) <- Doc[i].Author", "Plain <- Doc.Author")
    story.grant("b", "ann", "Author", service="Doc", instance="b")
    for role in ("A", "Plain"):
        with pytest.raises(RoleDenied):
            story.enter("x", "ann", role)
    assert story.enter("x", "ann", "Any").args("x") == ("b",)
    assert "y" in story.grant("a", "ann", "Author", service="Doc", instance="a").enter("y", "ann", "A")


# -- intermediate roles and other rules ---------------------------------------------------------------------------


@pytest.mark.parametrize("star", ["", "*"])
def test_an_intermediate_role_counts_as_one_that_was_entered(star: str) -> None:
    story = told("Via(u) <- L.On(u)* |>* Chair", f"In <- Via(u){star}", "Chair <- L.On('ann')").enter(
        "c", "ann", "Chair"
    )
    story.enter("in", "bob", "In")
    assert ("in" in story.revoke("ann", "Via", "bob")) is not bool(star)
    story = told("Via(u) <- L.On(u)*", f"In <- Via(u){star}").enter("in", "bob", "In")
    assert ("in" in story.end("bob-on")) is not bool(star)


def test_another_rolefile_keeps_what_still_follows_and_says_why_the_rest_does_not() -> None:
    story = (
        told("In(u) <- L.On(u)", "Out(u) <- L.On(u)", staff=("ann",)).enter("a", "ann", "In").enter("b", "bob", "In")
    )
    story.enter("o", "cat", "Out")
    record = story.state.roles.memberships["a"].record
    story.rolefile("In(u) <- L.On(u) : (u in staff)*", "Out(u) <- L.On(u)")
    assert [id for id in ("a", "b", "o") if id in story] == ["a", "o"]
    assert story.reasons["b"] == "it no longer follows from the rolefile"
    kept = story.state.roles.memberships["a"]
    assert kept.record == record
    assert kept.statement == "In(u) <- L.On(u) : (u in staff)*"
    assert "a" not in story.do(RemoveMember("staff", "ann"))


def test_what_rests_on_an_intermediate_role_must_still_lead_through_it() -> None:
    story = told("Via(u) <- L.On(u)", "Held(u) <- Via(u)*", "Free(u) <- Via(u)", staff=("ann",))
    story.enter("h", "ann", "Held").enter("f", "ann", "Free").enter("g", "bob", "Held")
    story.rolefile("Via(u) <- L.On(u) : (u in staff)*", "Held(u) <- Via(u)*", "Free(u) <- Via(u)")
    assert [id for id in ("h", "f", "g") if id in story] == ["h", "f"]
    assert [id for id in ("h", "f") if id in story.do(RemoveMember("staff", "ann"))] == ["f"]


def test_a_service_that_ends_takes_its_roles_along() -> None:
    story = told("In(u) <- L.On(u)").rolefile("Far(u) <- S.In(u)*", service="T").enter("i", "ann", "In")
    story.enter("t", "ann", "Far", service="T").do(SetRolefile("S", None))
    assert "i" not in story
    assert "t" not in story
    assert not [one for one in story.state.roles.records.values() if one.parents]
    with pytest.raises(UnknownName):
        story.do(SetRolefile("S", None))


def test_a_kept_reference_is_false_for_ever_once_the_new_rule_fails() -> None:
    """The record was a plain one; with what it rests on now it must not come back either."""
    story = told("In(u) <- L.On(u)", staff=("ann",)).enter("a", "ann", "In")
    ref = story.state.roles.memberships["a"].record
    story.do(WatchRecords("other", (ref,))).rolefile("In(u) <- L.On(u) : (u in staff)*")
    story.do(RemoveMember("staff", "ann"))
    assert story.state.roles.records[ref].state is False
    story.do(AddMember("staff", "ann"))
    assert story.state.roles.records[ref].state is False
    assert "a" not in story


def test_a_place_that_is_used_again_makes_another_reference() -> None:
    story = told("In(u) <- L.On(u)*").enter("a", "ann", "In")
    old = story.state.roles.memberships["a"].record
    story.end("a").enter("b", "ann", "In")
    new = story.state.roles.memberships["b"].record
    assert (new >> 32, new != old) == (old >> 32, True)
    assert old not in story.state.roles.records


# -- what is shown ------------------------------------------------------------------------------------------------


def test_why_something_is_refused_is_told_apart() -> None:
    story = told("In(u) <- L.On(u)")
    cases = [
        (lambda: story.enter("x", "ann", "In", using=("bob-on",)), "fraud"),
        (lambda: story.enter("x", "ann", "In", using=("gone",)), "revocation"),
        (lambda: story.enter("x", "ann", "In", using=()), "credentials"),
        (lambda: story.enter("x", "ann", "Nothing"), "misuse"),
        (lambda: story.enter("x", "ann", "In", service="Nowhere"), "misuse"),
        (lambda: story.enter("x", "ann", "In", "ann", "more"), "misuse"),
        (lambda: story.end("ann-on", "bob"), "fraud"),
        (lambda: story.elect("x", "ann", "In"), "credentials"),
        (lambda: story.revoke("ann", "In", "bob"), "credentials"),
    ]
    for ask, kind in cases:
        with pytest.raises(RoleDenied) as refused:
            ask()
        assert failure(refused) == kind
    assert "x" not in story


def test_ids_and_principals_are_checked() -> None:
    story = told("In(u) <- L.On(u)").enter("i", "ann", "In")
    with pytest.raises(BadDefinition, match="already names"):
        story.grant("i", "bob", "On", "bob")
    with pytest.raises(BadDefinition, match="already names"):  # nor is one used again in the batch in which it ended
        story.do(EndCredential("i"), EnterRole("i", "S", "In", None, "ann", None, NOW))
    with pytest.raises(UnknownName):
        story.grant("j", "nobody", "On", "bob")
    with pytest.raises(NotFound):
        story.end("nothing")
    assert "i" in story


def test_entering_again_what_one_holds_is_another_membership() -> None:
    story = told("In(u) <- L.On(u)*").enter("i", "ann", "In").enter("j", "ann", "In")
    assert {"i", "j"} <= story.state.roles.memberships.keys()
    assert "j" in story.end("i")


def test_time_is_that_of_the_request() -> None:
    line = "In(u) <- L.On(u) : (@time < timestamp '2026-01-01T09:00:20Z')*"
    story = told(line).enter("i", "ann", "In")
    with pytest.raises(RoleDenied):
        story.enter("j", "ann", "In", at=NOW + timedelta(minutes=1))
    assert "i" in story.do(Tick(later(19)))
    assert "i" not in story.do(Tick(later(20)))


def test_origin_and_client_are_those_of_the_request() -> None:
    story = told("In <- L.On(u) : @origin = 'ely' and u = @client").enter("i", "ann", "In", origin="ely")
    for origin in ("cam", None):
        with pytest.raises(RoleDenied):
            story.enter("j", "ann", "In", origin=origin)
    assert replace(story.state.roles.memberships["i"]).holder == "ann"
