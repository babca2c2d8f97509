"""The police network: three organisations that share no database and trust nothing but signatures (Capabilities I-III).

Guarantees: PITO, the Met and the congestion charge service (CCS) each have a directory with keys of their own; all
that passes between them is signed files. The Met's domain is told PITO's key and nothing else; whatever it knows of
rights it has verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from headgate.cli.stories.office import Office, altered
from headgate.cli.stories.script import (
    Aside,
    ChainExhibit,
    Declaring,
    Deed,
    Revoking,
    Showing,
    Story,
    StoryAttempt,
    StoryQuestion,
    StoryReader,
    StoryScene,
    TableExhibit,
    subscribe,
)
from headgate.lang import parse_condition
from headgate.model.authority import NETWORK_ACTIONS, NetworkAuthority, TypeAuthority
from headgate.model.changes import SetConnect, SetCoordinator
from headgate.model.events import Draft
from headgate.model.rights import Action
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.trust.certificates import issue_certificate
from headgate.trust.keys import PrivateKey
from headgate.trust.typedefs import SignedType, issue_type, verify_type
from headgate.trust.vouching import check_broker

_TYPE: Final = "uk.gov.pito.Numberplate"
_ATTRIBUTES: Final = {"numberplate": Kind.STRING, "timestamp": Kind.TIMESTAMP, "location": Kind.STRING}
_WANTED: Final = "numberplate = 'AE05 XYZ'"
_KEYS: Final = "{dir}/met/keys"
_FILES: Final = "{dir}/met/statements"
_OWNER: Final = "{dir}/pito/keys/pito.did"
_PUBLISH: Final = frozenset({Action.PUBLISH})
_SUBSCRIBE: Final = frozenset({Action.SUBSCRIBE})
_CONNECT: Final = NetworkAuthority(frozenset({Action.CONNECT}))


@dataclass(frozen=True, slots=True)
class _World:
    """The three organisations, and a key that is of none of them."""

    now: datetime
    pito: Office
    met: Office
    ccs: Office
    stranger: PrivateKey

    @property
    def names(self) -> dict[str, str]:
        """What every key is called."""
        return {
            **self.pito.names,
            **self.met.names,
            **self.ccs.names,
            self.stranger.public.did: "the stranger",
        }


def police(directory: Path, now: datetime) -> Story:
    """The story, with keys and statements made in a directory for each organisation."""
    world = _World(
        now,
        Office(directory / "pito", now, "pito"),
        Office(directory / "met", now, "met", "broker", "camera-victoria", "smith"),
        Office(directory / "ccs", now, "ccs", "billing", "statistician"),
        PrivateKey.generate(),
    )
    definition = _issued_by_pito(world)
    _issued_by_the_met(world)
    _issued_by_the_ccs(world)
    return _told(world, definition)


# -- the papers -----------------------------------------------------------------------------------------------


def _issued_by_pito(world: _World) -> SignedType:
    """PITO coordinates the network and owns the type: it signs that, and what the two services may do with it."""
    pito, key = world.pito, world.pito.did("pito")
    install = pito.certify("install", "pito", key, NetworkAuthority(frozenset({Action.INSTALL})))
    text = issue_type(pito.key("pito"), name=_TYPE, attributes=_ATTRIBUTES, now=world.now, credentials=[install])
    pito.keep("numberplate", text)
    types = TypeAuthority(_PUBLISH | _SUBSCRIBE, "uk.gov.pito.*", key)
    pito.certify("to-the-met", "pito", world.met.did("met"), NetworkAuthority(NETWORK_ACTIONS), types, delegate=True)
    reading = TypeAuthority(_SUBSCRIBE, _TYPE, key)
    pito.certify("to-the-ccs", "pito", world.ccs.did("ccs"), _CONNECT, reading, delegate=True)
    pito.hand("numberplate", world.met)
    pito.hand("to-the-met", world.met)
    pito.hand("to-the-ccs", world.ccs)
    return verify_type(world.met.read("numberplate"), coordinator=key, now=world.now)


def _issued_by_the_met(world: _World) -> None:
    met, owner = world.met, world.pito.did("pito")
    everything = NetworkAuthority(NETWORK_ACTIONS), TypeAuthority(_PUBLISH | _SUBSCRIBE)
    met.certify("blanket", "met", met.did("broker"), *everything, delegate=True)
    sighting = TypeAuthority(_PUBLISH, _TYPE, owner, tuple(_ATTRIBUTES), {"location": "Victoria"})
    met.certify("camera", "met", met.did("camera-victoria"), _CONNECT, sighting)
    met.certify("badge", "met", met.did("smith"), _CONNECT)
    met.certify(
        "warrant", "met", met.did("smith"), TypeAuthority(_SUBSCRIBE, _TYPE, owner, where=parse_condition(_WANTED))
    )
    met.revoke("revoked-by-the-met", "met", "warrant")


def _issued_by_the_ccs(world: _World) -> None:
    """The CCS gives the statistician more than it has: `publish` is cut."""
    ccs, owner = world.ccs, world.pito.did("pito")
    charging = TypeAuthority(_SUBSCRIBE, _TYPE, owner, ("numberplate", "timestamp"))
    counting = TypeAuthority(_PUBLISH | _SUBSCRIBE, _TYPE, owner, ("timestamp", "location"))
    ccs.certify("charging", "ccs", ccs.did("billing"), _CONNECT, charging)
    ccs.certify("counting", "ccs", ccs.did("statistician"), _CONNECT, counting)
    world.pito.revoke("revoked-by-pito", "pito", "to-the-ccs")
    world.pito.hand("revoked-by-pito", world.met)


def _stranger(world: _World) -> str:
    """A warrant by someone who owns nothing and was given nothing."""
    return issue_certificate(
        world.stranger,
        subject=world.met.did("smith"),
        authority=[TypeAuthority(_SUBSCRIBE, _TYPE)],
        now=world.now,
        id="from-a-stranger",
    )


# -- the play -------------------------------------------------------------------------------------------------


def _told(world: _World, definition: SignedType) -> Story:
    met, ccs, pito = world.met, world.ccs, world.pito
    smith, billing, statistician = met.did("smith"), ccs.did("billing"), ccs.did("statistician")
    warrant = met.read("warrant")
    return Story(
        name="police",
        title="A police network: three organisations, no common administrator",
        opening="PITO owns the event type Numberplate and coordinates the network. The Met has the cameras, the "
        "congestion charge service (CCS) has none. They share no database: PITO certifies both, each certifies its own "
        "people, and the Met's domain, which knows nobody but PITO, lets in whoever shows a chain that begins there:",
        source="Victoria camera",
        policy=(SetCoordinator(pito.did("pito")), SetConnect(False)),
        deeds=_arrivals(world),
        signed=(EventType(_TYPE, pito.did("pito"), dict(definition.attributes)),),
        subscriptions=(
            subscribe("smith", smith, _TYPE),
            subscribe("billing", billing, _TYPE),
            subscribe("statistician", statistician, _TYPE),
            subscribe("broker", met.did("broker"), _TYPE),
        ),
        readers=(
            StoryReader("smith", "Detective Smith", "PITO > Met > Smith: everything about one car", 23),
            StoryReader("billing", "Billing office", "PITO > CCS > billing: plate and time", 17),
            StoryReader("statistician", "Statistician", "PITO > CCS > statistician: place and time", 17),
        ),
        scenes=(
            StoryScene(
                "Cars pass Victoria. The camera's certificate forces the place: where it says Kew, it was Victoria. "
                "The CCS wrote that its statistician may publish, too; that is cut, for it may not itself.",
                (
                    _seen(world, "e1", "AE05 XYZ", "09:00"),
                    _seen(world, "e2", "LB07 GUY", "09:02"),
                    _seen(world, "e3", "AE05 XYZ", "09:05", location="Kew"),
                ),
                tried=(
                    StoryAttempt(
                        "the statistician reports a car",
                        Draft("x1", statistician, _TYPE, {"numberplate": "AE05 XYZ"}),
                        "publish-denied",
                    ),
                ),
            ),
            StoryScene(
                "The Met signs a list that takes the warrant back. Smith's deliveries stop at the marked line, before "
                "the next sighting of the same car; nobody else notices. Showing the warrant again, altering it or "
                "bringing one from somebody else does not help.",
                (
                    _seen(world, "e4", "AE05 XYZ", "09:15"),
                    _seen(world, "e5", "KX51 ABC", "09:16"),
                ),
                deed=Revoking(met.read("revoked-by-the-met")),
                note="the Met revokes the warrant",
                tried=(
                    StoryAttempt("Smith shows the warrant again", Showing(smith, (warrant,)), "revoked"),
                    StoryAttempt(
                        "Smith shows it with another plate in it",
                        Showing(smith, (altered(warrant, "AE05 XYZ", "LB07 GUY"),)),
                        "bad-statement",
                    ),
                    StoryAttempt("Smith shows one by a stranger", Showing(smith, (_stranger(world),)), "chain-invalid"),
                ),
            ),
            StoryScene(
                "PITO takes back what it gave the CCS. Both chains went through that certificate, so billing and "
                "statistician fall together, in one version, though nobody revoked anything of theirs.",
                (
                    _seen(world, "e6", "AE05 XYZ", "09:20"),
                    _seen(world, "e7", "LB07 GUY", "09:21"),
                ),
                deed=Revoking(met.read("revoked-by-pito")),
                note="PITO revokes the CCS",
            ),
        ),
        question=StoryQuestion(
            "Why does the billing office not see where car AE05 XYZ was at 09:05?", billing, "e3", "location"
        ),
        moral="Each reader got exactly what its chain allowed at that point of the stream",
        asides=(
            Aside(
                "broker",
                "The Met's broker holds a blanket certificate: all that the Met was given, and nothing new to issue "
                "when that grows. It received all {count} reports.",
            ),
        ),
        exhibits=_exhibits(world, definition),
        names=world.names,
        place="met",
        tries=(
            (
                f"headgate cert verify --keys {_KEYS} {_FILES}/to-the-met.jwt {_FILES}/camera.jwt --owner {_OWNER}",
                "the chain of the camera, from the files alone",
            ),
            (
                f"headgate cert verify --keys {_KEYS} {_FILES}/to-the-met.jwt {_FILES}/warrant.jwt --owner {_OWNER}",
                "the chain of Detective Smith, which the list beside it has ended",
            ),
            (
                f"headgate type verify {_FILES}/numberplate.jwt --keys {{dir}}/pito/keys --coordinator pito",
                "the type, which carries all that allows it",
            ),
        ),
    )


def _arrivals(world: _World) -> tuple[Deed, ...]:
    """PITO's type is declared, and everyone shows the chain that lets them in."""
    met, ccs = world.met, world.ccs
    by_the_met, by_pito = met.read("to-the-met"), ccs.read("to-the-ccs")
    return (
        Declaring(_TYPE, met.read("numberplate")),
        Showing(met.did("broker"), (by_the_met, met.read("blanket"))),
        Showing(met.did("camera-victoria"), (by_the_met, met.read("camera"))),
        Showing(met.did("smith"), (by_the_met, met.read("badge"), met.read("warrant"))),
        Showing(ccs.did("billing"), (by_pito, ccs.read("charging"))),
        Showing(ccs.did("statistician"), (by_pito, ccs.read("counting"))),
    )


def _exhibits(world: _World, definition: SignedType) -> tuple[ChainExhibit | TableExhibit, ...]:
    pito, met, ccs = world.pito, world.met, world.ccs
    shown = (met.read("to-the-met"), met.read("blanket"))
    check_broker(shown, broker=met.did("broker"), coordinator=pito.did("pito"), now=world.now)
    return (
        TableExhibit(
            "What was verified before anything began",
            ("by", "what", "against"),
            (
                ("the Met's domain", f"the type {definition.name}, as signed", "the key of pito"),
                ("Detective Smith", "the broker that he connects to", "the key of pito"),
            ),
        ),
        ChainExhibit("Detective Smith's chain", met.chain(("to-the-met", "warrant"))),
        ChainExhibit(
            "The statistician's chain",
            (*ccs.chain(("to-the-ccs",)), *ccs.chain(("counting",))),
        ),
    )


def _seen(world: _World, id: str, plate: str, time: str, **more: str) -> Draft:
    values = {"numberplate": plate, "timestamp": f"2026-01-05T{time}:00Z", **more}
    return Draft(id, world.met.did("camera-victoria"), _TYPE, values)
