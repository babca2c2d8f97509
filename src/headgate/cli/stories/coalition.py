"""Two communities of trust, guests from one in the other, and requirements in both directions (Guard II and IV).

Guarantees: Norway and Italy each have a directory with keys of their own. The domain is Italy's; it believes its own
identity provider and nobody else. What Norway says of its members counts there only as Italy's mapping understands it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from headgate.cli.shared.rendering import show_value
from headgate.cli.stories.office import Office, altered
from headgate.cli.stories.script import (
    Showing,
    Story,
    StoryAttempt,
    StoryQuestion,
    StoryReader,
    StoryScene,
    TableExhibit,
    Waiting,
    event_type,
    grant,
    group,
    message,
    principals,
    publisher,
    subscribe,
)
from headgate.model.authority import AttributeMap, Provider, Validity
from headgate.model.changes import SetConnect, SetKey, SetProvider
from headgate.model.values import Value
from headgate.trust.guests import cross_domain, guest, verify_server
from headgate.trust.identities import issue_identity, verify_identity

_TYPE: Final = "coalition.Report"
_CLEARED: Final = "$clearance = 'secret'"
_KEYS: Final = "{dir}/norway/keys"
_FILES: Final = "{dir}/norway/statements"
_DAY: Final = timedelta(hours=8)
_VISIT: Final = timedelta(hours=1)
_MAPPING: Final = (
    AttributeMap("nation", "nation"),
    AttributeMap("gradering", "clearance", (("HEMMELIG", "secret"), ("BEGRENSET", "restricted"))),
)
"""How Italy understands what Norway says: the nation as it is, two grades by Italy's words, and nothing else."""

_ITALIANS: Final[Mapping[str, Mapping[str, Value]]] = {
    "mario": {"nation": "IT", "clearance": "secret"},
    "rosa": {"nation": "IT"},
    "giulia": {"nation": "IT", "clearance": "secret"},
    "gate": {"nation": "IT", "service": "gateway"},
}
_NORWEGIANS: Final[Mapping[str, tuple[Mapping[str, Value], timedelta]]] = {
    "ola": ({"nation": "NO", "gradering": "HEMMELIG", "rank": "major"}, _VISIT),
    "kari": ({"nation": "NO", "gradering": "FORTROLIG", "rank": "captain"}, _DAY),
}


@dataclass(frozen=True, slots=True)
class _World:
    """The two communities."""

    now: datetime
    norway: Office
    italy: Office

    def identify(self, office: Office, by: str, who: str, attributes: Mapping[str, Value], time: timedelta) -> None:
        """A provider's statement about a member, for some time."""
        start = self.now.replace(microsecond=0)
        text = issue_identity(
            office.key(by),
            subject=office.did(who),
            attributes=attributes,
            validity=Validity(start, start + time),
            now=self.now,
            id=who,
        )
        office.keep(who, text)


def coalition(directory: Path, now: datetime) -> Story:
    """The story, with keys and statements made in a directory for each community."""
    world = _World(
        now,
        Office(directory / "norway", now, "norway", *_NORWEGIANS),
        Office(directory / "italy", now, "italy", *_ITALIANS),
    )
    home = Provider(world.norway.did("norway"), "norway", _MAPPING)
    for who, attributes in _ITALIANS.items():
        world.identify(world.italy, "italy", who, attributes, _DAY)
    for who, (attributes, time) in _NORWEGIANS.items():
        world.identify(world.norway, "norway", who, attributes, time)
        _invite(world, home, who)
    return _told(world, home)


def _invite(world: _World, home: Provider, who: str) -> None:
    """The statement from home goes to Italy's provider, and a guest statement comes back."""
    world.norway.hand(who, world.italy)
    text = guest(world.italy.read(who), home=home, host=world.italy.key("italy"), now=world.now)
    world.italy.keep(f"{who}-guest", text)
    world.italy.hand(f"{who}-guest", world.norway)


# -- the play -------------------------------------------------------------------------------------------------


def _told(world: _World, home: Provider) -> Story:
    norway, italy = world.norway, world.italy
    people = {**{who: italy.did(who) for who in _ITALIANS}, **{who: norway.did(who) for who in _NORWEGIANS}}
    del people["gate"]
    return Story(
        name="coalition",
        title="A coalition: two communities of trust, and guests",
        opening="Norway and Italy each have an identity provider. The network is Italy's. Ola and Kari, from Norway, "
        "come as guests: Italy's provider takes their statements from home, translates them by an agreed mapping, and "
        "signs what is left. Reports say whom they require, and so do subscriptions:",
        source="the report, and whom it requires",
        policy=(
            *principals("staff", *people),
            *(SetKey(who, key) for who, key in people.items()),
            *group("all", *people),
            SetConnect(True),
            SetProvider(Provider(italy.did("italy"), "italy")),
            SetProvider(home),
            event_type(_TYPE, "staff", author="string", text="string"),
            publisher("mario-reports", "mario", _TYPE, {"author": "mario"}, "text"),
            publisher("rosa-reports", "rosa", _TYPE, {"author": "rosa"}, "text"),
            grant("all-read", "all", _TYPE),
        ),
        deeds=(
            *(Showing(people[who], (italy.read(who),)) for who in ("mario", "rosa", "giulia")),
            *(Showing(people[who], (norway.read(f"{who}-guest"),)) for who in _NORWEGIANS),
        ),
        subscriptions=(
            subscribe("giulia", "giulia", _TYPE),
            subscribe("ola", "ola", _TYPE, requires=_CLEARED),
            subscribe("kari", "kari", _TYPE),
        ),
        readers=(
            StoryReader("giulia", "Giulia", "Italian, cleared"),
            StoryReader("ola", "Ola", "guest for an hour, cleared; reads only authors with $clearance = 'secret'"),
            StoryReader("kari", "Kari", "guest for the day; her grade means nothing in Italy"),
        ),
        scenes=(
            StoryScene(
                "Reports go to those whom they require. Ola requires something, too: nothing of Rosa's, who is not "
                "cleared, reaches him.",
                (
                    message("r1", "mario", _TYPE, "bridge", _CLEARED),
                    message("r2", "mario", _TYPE, "ford", "$nation = 'IT'"),
                    message("r3", "rosa", _TYPE, "menu"),
                    message("r4", "mario", _TYPE, "fuel", "$nation = 'NO'"),
                ),
            ),
            StoryScene(
                "What Norway says does not count in Italy by itself, and what Italy signed cannot be improved upon.",
                (message("r5", "mario", _TYPE, "pass", _CLEARED),),
                tried=(
                    StoryAttempt(
                        "Ola shows his statement from home",
                        Showing(people["ola"], (norway.read("ola"),)),
                        "chain-invalid",
                    ),
                    StoryAttempt(
                        "Kari adds a clearance to hers",
                        Showing(
                            people["kari"],
                            (
                                altered(
                                    norway.read("kari-guest"), '"nation":"NO"', '"nation":"NO","clearance":"secret"'
                                ),
                            ),
                        ),
                        "bad-statement",
                    ),
                ),
            ),
            StoryScene(
                "An hour has passed. Ola's guest statement has ended, and his attributes with it, at the marked line. "
                "He keeps his subscription, and receives what requires nothing of him.",
                (
                    message("r6", "mario", _TYPE, "road", _CLEARED),
                    message("r7", "mario", _TYPE, "tide", "$nation = 'NO'"),
                    message("r8", "mario", _TYPE, "mass"),
                ),
                deed=Waiting(_VISIT),
                note="Ola's statement ends",
            ),
        ),
        question=StoryQuestion("Why did Ola not receive the report r6?", "ola", "r6", "text"),
        moral="Each report reached exactly those whom both sides required",
        exhibits=_exhibits(world, home),
        names={**norway.names, **italy.names},
        place="italy",
        tries=(
            (
                f"headgate identity show --keys {_KEYS} {_FILES}/ola.jwt {_FILES}/ola-guest.jwt",
                "what Norway says of Ola, and what Italy made of it",
            ),
        ),
    )


def _exhibits(world: _World, home: Provider) -> tuple[TableExhibit, ...]:
    """The mapping at work; and the gateway's identity, which the guests check as it checks theirs."""
    norway, italy = world.norway, world.italy
    until = world.now.replace(microsecond=0) + _VISIT
    norway.keep(
        "italy-is-a-provider",
        cross_domain(
            norway.key("norway"),
            other=italy.did("italy"),
            validity=Validity(world.now.replace(microsecond=0), until),
            now=world.now,
        ),
    )
    italy.hand("gate", norway)
    server = verify_server(
        norway.read("gate"),
        norway.read("italy-is-a-provider"),
        anchor=norway.did("norway"),
        audience=None,
        now=world.now,
    )
    rows = [(who, *row) for who in _NORWEGIANS for row in _translated(world, home, who)]
    return (
        TableExhibit("How Italy understands Norway's statements", ("guest", "at home", "in Italy", ""), tuple(rows)),
        TableExhibit(
            "And the other way round",
            ("who checks", "what", "by whose word"),
            (
                (
                    "Ola",
                    f"the gateway: nation = {show_value(server.attributes['nation'])}",
                    "Norway vouches for Italy's provider",
                ),
            ),
        ),
    )


def _translated(world: _World, home: Provider, who: str) -> Iterator[tuple[str, str, str]]:
    """Each attribute at home, and what has become of it."""
    now, office = world.now, world.norway
    theirs = verify_identity(office.read(who), audience=None, now=now).attributes
    ours = verify_identity(office.read(f"{who}-guest"), audience=None, now=now).attributes
    maps = {one.name: one for one in home.mapping or ()}
    for name, value in theirs.items():
        one, said = maps.get(name), f"{name} = {show_value(value)}"
        if one is None:
            yield said, "-", "dropped: not in the mapping"
        elif one.to not in ours:
            yield said, "-", "dropped: value not mapped"
        else:
            kept = "kept as it is" if (one.to, ours[one.to]) == (name, value) else "renamed"
            yield said, f"{one.to} = {show_value(ours[one.to])}", kept
