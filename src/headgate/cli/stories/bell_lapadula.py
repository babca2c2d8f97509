"""No reading up and no writing down, by attributes and policy rules alone (Guard II.E)."""

from __future__ import annotations

from typing import Final

from headgate.cli.stories.script import (
    Aside,
    Story,
    StoryAttempt,
    StoryQuestion,
    StoryReader,
    StoryScene,
    event_type,
    grant,
    group,
    message,
    principals,
    publisher,
    subscribe,
)
from headgate.lang import parse_condition
from headgate.model.changes import DeclarePrincipal, SetAttribute, SetPolicyRule

_TYPE: Final = "hq.Note"
_CLEARED: Final = "$clearance = 'secret'"
_RESTRICTED: Final = "$clearance = 'restricted'"
_EITHER: Final = "$clearance in {'restricted', 'secret'}"


BELL_LAPADULA: Final = Story(
    name="bell-lapadula",
    title="Bell-LaPadula: nobody reads up, nobody writes down",
    opening="All at headquarters have the same right to read notes. What keeps them apart is what they are: a note "
    "says which receivers it requires, and a policy rule says how far its author may open that. The rule must be wider "
    "than the requirement, for every receiver there could ever be, and that is proven before the note is stored:",
    source="the note, and whom it requires",
    policy=(
        *principals("hq"),
        DeclarePrincipal("major", {"clearance": "secret"}),
        DeclarePrincipal("clerk", {"clearance": "restricted"}),
        DeclarePrincipal("visitor"),
        *group("everyone", "major", "clerk", "visitor"),
        event_type(_TYPE, "hq", author="string", text="string"),
        publisher("major-writes", "major", _TYPE, {"author": "major"}, "text"),
        publisher("clerk-writes", "clerk", _TYPE, {"author": "clerk"}, "text"),
        grant("everyone-reads", "everyone", _TYPE),
        SetPolicyRule("major", parse_condition(_CLEARED)),
        SetPolicyRule("clerk", parse_condition(_EITHER)),
    ),
    subscriptions=(
        subscribe("major", "major", _TYPE),
        subscribe("clerk", "clerk", _TYPE),
        subscribe("visitor", "visitor", _TYPE),
        subscribe("plans", "clerk", _TYPE, "author = 'major'"),
    ),
    readers=(
        StoryReader("major", "Major", f"is cleared for secrets; policy rule {_CLEARED}"),
        StoryReader("clerk", "Clerk", f"is cleared for restricted notes; policy rule {_EITHER}"),
        StoryReader("visitor", "Visitor", "is cleared for nothing"),
    ),
    scenes=(
        StoryScene(
            "Notes go to those whom they require. The clerk may write up, to the major, and never reads the major's.",
            (
                message("n1", "major", _TYPE, "plan", _CLEARED),
                message("n2", "clerk", _TYPE, "rota", _RESTRICTED),
                message("n3", "clerk", _TYPE, "tip", _CLEARED),
            ),
        ),
        StoryScene(
            "The major tries to write down: to the clerk, to everyone, and through a back door that looks like a "
            "narrower rule. Each is refused with a receiver who would have got it and whom the policy rule keeps out.",
            (message("n4", "major", _TYPE, "move", _CLEARED),),
            tried=(
                StoryAttempt(
                    "the major writes to the restricted",
                    message("x1", "major", _TYPE, "plan", _RESTRICTED),
                    "policy-rule",
                ),
                StoryAttempt("the major writes to everyone", message("x2", "major", _TYPE, "plan"), "policy-rule"),
                StoryAttempt(
                    "the major writes to the secret or the press",
                    message("x3", "major", _TYPE, "plan", f"{_CLEARED} or $unit = 'press'"),
                    "policy-rule",
                ),
            ),
        ),
        StoryScene(
            "The clerk is cleared for secrets. From the marked line on the major's notes arrive, and writing down is "
            "over: what was allowed before is refused now.",
            (
                message("n5", "major", _TYPE, "halt", _CLEARED),
                message("n6", "clerk", _TYPE, "read", _CLEARED),
            ),
            (
                SetAttribute("clerk", "clearance", "secret"),
                SetPolicyRule("clerk", parse_condition(_CLEARED)),
            ),
            "the clerk is cleared",
            tried=(
                StoryAttempt(
                    "the clerk writes to the restricted",
                    message("x4", "clerk", _TYPE, "rota", _RESTRICTED),
                    "policy-rule",
                ),
            ),
        ),
    ),
    question=StoryQuestion("Why did the clerk not receive the major's plan, n1?", "clerk", "n1", "text"),
    moral="Each note reached only those whom it and its author's policy rule let in",
    asides=(
        Aside(
            "plans",
            "Asking for the major's notes by name did not help either: {count} came, the one after the clearance.",
        ),
    ),
)
