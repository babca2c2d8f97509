"""A meeting whose chair may show anyone the door, and a detective with a court order (OASIS 3.4.2; Capabilities V)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from headgate.cli.stories.script import (
    Story,
    StoryQuestion,
    StoryReader,
    StoryScene,
    event_type,
    group,
    principals,
    publisher,
    subscribe,
)
from headgate.lang import parse_condition
from headgate.lang.rolefile import parse_role, parse_rolefile
from headgate.model.changes import (
    AddRow,
    AddRule,
    Change,
    DeclareRelation,
    ElectRole,
    EndCredential,
    EnterRole,
    GrantRole,
    ReinstateRole,
    RevokeRole,
    SetRolefile,
)
from headgate.model.conditions import TRUE
from headgate.model.events import Draft
from headgate.model.rights import Action, Rule

_SAID: Final = "meet.Said"
_PLATE: Final = "uk.Plate"
_AT: Final = datetime(2026, 1, 5, 9, tzinfo=UTC)
_SEES: Final = frozenset({Action.SUBSCRIBE})

_MEETING: Final = parse_rolefile("""
Chair        <- Login.LoggedOn('rmn', h)
Candidate(u) <- Login.LoggedOn(u, h)* |>* Chair
Member       <- Candidate(u)* : u in staff
Member       <- Candidate(u)* <|* Member
""")
_MET: Final = parse_rolefile("""
npTracker(d, np) <- Police.detective(d)* & Court.courtOrder(case, np)* : caseAssignment(d, case)*
""")


def _by_role(id: str, role: str, type: str, where: str = "") -> AddRule:
    """A right for whoever holds a role."""
    condition = parse_condition(where) if where else TRUE
    return AddRule(Rule(id, "", _SEES, type, condition, role=parse_role(role)))


def _logged_on(who: str) -> GrantRole:
    return GrantRole(f"{who}-on", "Login", "LoggedOn", (who, "ely"), who)


def _enter(id: str, service: str, role: str, who: str, *using: str) -> EnterRole:
    return EnterRole(id, service, role, None, who, using or None, _AT)


def _says(id: str, words: str) -> Draft:
    return Draft(id, "room", _SAID, {"words": words})


def _sees(id: str, plate: str, place: str) -> Draft:
    return Draft(id, "cctv", _PLATE, {"plate": plate, "place": place})


_ROLES: Final[tuple[Change, ...]] = (
    SetRolefile("Meeting", _MEETING),
    SetRolefile("Met", _MET),
    *map(_logged_on, ("rmn", "ann", "bob")),
    _enter("chair", "Meeting", "Chair", "rmn"),
    _enter("ann-in", "Meeting", "Member", "ann"),
    ElectRole("invited", "Meeting", "Member", None, "ann", None, _AT, (parse_role("Login.LoggedOn('bob', _)"),)),
    _enter("bob-in", "Meeting", "Member", "bob", "bob-on", "invited"),
    GrantRole("smith-d", "Police", "detective", ("smith",), "smith"),
    GrantRole("order", "Court", "courtOrder", ("case-7", "AE05 XYZ"), "smith", appointment=True),
    _enter("tracker", "Met", "npTracker", "smith"),
)

MEETING: Final = Story(
    name="meeting",
    title="Roles: a meeting with a door, and a court order",
    opening="Rights are given to roles, and roles are names that services give: Ann is a member of the meeting because "
    "she is logged on and staff, Bob because Ann invited him. Smith tracks one number plate because he is a detective, "
    "the court has ordered it and the case is his. What a star marks must last; when it does not, the role falls with "
    "all that rests on it, in one version:",
    source="what happens",
    policy=(
        *principals("room", "cctv", "rmn", "ann", "bob", "smith"),
        *group("staff", "rmn", "ann"),
        DeclareRelation("caseAssignment"),
        AddRow("caseAssignment", ("smith", "case-7")),
        event_type(_SAID, "room", words="string"),
        event_type(_PLATE, "cctv", plate="string", place="string"),
        publisher("room-tells", "room", _SAID),
        publisher("cameras", "cctv", _PLATE),
        _by_role("members-hear", "Meeting.Member", _SAID),
        _by_role("trackers-see", "Met.npTracker(d, np)", _PLATE, "plate = $np"),
        *_ROLES,
    ),
    subscriptions=(
        subscribe("ann", "ann", _SAID),
        subscribe("bob", "bob", _SAID),
        subscribe("smith", "smith", _PLATE),
    ),
    readers=(
        StoryReader("ann", "Ann", "Meeting.Member: logged on, and staff"),
        StoryReader("bob", "Bob", "Meeting.Member: logged on, and invited by Ann"),
        StoryReader("smith", "Smith", "Met.npTracker('smith', 'AE05 XYZ'): detective, court order, case"),
    ),
    scenes=(
        StoryScene(
            "Members hear what is said; the tracker sees the plate that his role was given for, and no other.",
            (_says("s1", "agenda"), _sees("p1", "AE05 XYZ", "Soho"), _sees("p2", "BD51 SMR", "Soho")),
        ),
        StoryScene(
            "The chair ejects Bob: Candidate('bob') is revoked, and his membership falls with it.",
            (_says("s2", "budget"),),
            (RevokeRole("Meeting", "Candidate", ("bob",), "rmn", ("chair",), _AT),),
            "the chair ejects Bob",
        ),
        StoryScene(
            "The court takes its order back: the tracker's role falls, though he is still a detective on the case.",
            (_sees("p3", "AE05 XYZ", "Bank"), _says("s3", "vote")),
            (EndCredential("order"),),
            "the order is withdrawn",
        ),
        StoryScene(
            "The chair relents, and Bob walks in again, by the invitation that still stands.",
            (_says("s4", "lunch"),),
            (
                ReinstateRole("Meeting", "Candidate", ("bob",), "rmn", ("chair",), _AT),
                _enter("bob-back", "Meeting", "Member", "bob", "bob-on", "invited"),
            ),
            "Bob may come back",
        ),
    ),
    question=StoryQuestion("Why did Bob not hear of the budget, s2?", "bob", "s2", "words"),
    moral="Each role gave what it gave for exactly as long as everything it rests on was true",
    tries=(
        ("headgate role graph --domain {dir}", "every credential, and what it rests on"),
        ("headgate role graph --falls ann-on --domain {dir}", "what would fall if Ann logged off"),
        ("headgate role show bob-in --domain {dir}", "how Bob's first membership was gained, and why it ended"),
    ),
)
