"""What a narrator says of a scenario, and shows: nothing of it changes what happens.

Guarantees: every principal, subscription, event, statement and type that a narration names is one of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.model.authority import Certificate, Identity
from headgate.model.values import brief
from headgate.scenario.format.yamlfile import INTEGER, TEXT, YamlFields, YamlNode, several_of

LINE_KEYS: Final = ("say", "note", "show")
"""The keys of a step that are for the narrator."""
_STORY_KEYS: Final = (
    *("opening", "source", "readers", "asides", "question", "moral", "organisations", "domain", "tries"),
    *("map", "signals"),
)
_EXHIBITS: Final = ("chain", "guests", "checks", "roles")


@dataclass(frozen=True, slots=True)
class ShownCheck:
    """Something that is verified, in words; what it is says which of the others are given.

    By `broker` a client verifies the one that it connects to, by a chain from the coordinator. By `server` a guest
    verifies one: its provider at home, the `anchor`, vouches for the `provider` of the server. By `type` a domain
    verifies the signed definition.
    """

    words: tuple[str, ...]
    broker: tuple[str, ...] = ()
    server: str = ""
    anchor: str = ""
    provider: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """Something to show under a title.

    A `chain` of certificates, from the first issuer to the holder; what became of each attribute of `guests` on the way
    from home, by their statements here; `checks`, each a row of words under `columns`; or the credentials at this
    point, and what each rests on (`roles`).
    """

    title: str
    kind: str
    statements: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    checks: tuple[ShownCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class StoryLine:
    """The narrator's part of one step.

    `say` begins a scene that lasts until the next. `note` marks the step in the table, where a version starts or
    something is refused, and in the ledger. `show` is for when the step has been taken.
    """

    say: str = ""
    note: str = ""
    show: tuple[Exhibit, ...] = ()


@dataclass(frozen=True, slots=True)
class StoryReader:
    """A column of the table: a subscription, and what its principal may see, in plain words.

    `width` is that of the column where it can be narrower than a whole event.
    """

    subscription: str
    title: str
    sees: str
    width: int = 0


@dataclass(frozen=True, slots=True)
class StoryQuestion:
    """Why does a principal not see an attribute of an event?"""

    text: str
    principal: str
    event: str
    attribute: str


@dataclass(frozen=True, slots=True)
class StoryMap:
    """Where things are, as each reader sees it: of each `thing` its newest `place`, in a column for each `column`.

    All three are attributes of events. `names` are relations that say what their values are called.
    """

    thing: str
    column: str
    place: str
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Narration:
    """How a scenario is told, from the first sentence to the last.

    `asides` are sentences about the `{count}` of events that a subscription without a column received.
    `organisations` have directories with the keys of some principals, and `domain` is the one that the domain is in.
    `tries` are commands for afterwards, with `{dir}` for the directory of the story, and what each is for.
    A `map` shows where things are; `signals` are sentences about what detections signal, with variables in braces.
    """

    opening: str
    source: str
    readers: tuple[StoryReader, ...]
    question: StoryQuestion
    moral: str
    asides: Mapping[str, str]
    organisations: Mapping[str, tuple[str, ...]]
    domain: str
    tries: tuple[tuple[str, str], ...]
    map: StoryMap | None = None
    signals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoryNames:
    """The names of a file, and what its narrator says with them."""

    principals: Collection[str]
    subscriptions: Collection[str]
    events: Mapping[str, str]
    statements: Mapping[str, Certificate | Identity]
    types: Collection[str]
    detections: Collection[str] = ()
    relations: Collection[str] = ()

    def narration(self, node: YamlNode) -> Narration:
        """The `story` of a file."""
        fields = node.fields(_STORY_KEYS, ("opening", "source", "readers", "question", "moral"))
        members = several_of(self._one_of("principal"))
        organisations = {name: members(inner) for name, inner in fields.entries("organisations")}
        if organisations and "domain" not in fields:
            node.refuse("the key `domain` is missing", "name the organisation that the domain is in")
        return Narration(
            readers=tuple(self._reader(id, inner) for id, inner in fields.entries("readers")),
            question=self._question(fields["question"]),
            asides={self._subscription(id, inner): inner.text() for id, inner in fields.entries("asides")},
            organisations=organisations,
            domain=fields.maybe("domain", lambda inner: _known(inner, organisations, "organisation"), ""),
            tries=tuple(map(_try, fields.each("tries"))),
            map=fields.maybe("map", self._map),
            signals={self._detection(id, inner): inner.text() for id, inner in fields.entries("signals")},
            **fields.given(opening=TEXT, source=TEXT, moral=TEXT),
        )

    def line(self, fields: YamlFields) -> StoryLine:
        """The narrator's keys of a step."""
        return StoryLine(**fields.given(say=TEXT, note=TEXT, show=several_of(self._exhibit)))

    def _reader(self, id: str, node: YamlNode) -> StoryReader:
        given = node.record({"title": TEXT, "sees": TEXT, "width": INTEGER}, ("title", "sees"))
        return StoryReader(self._subscription(id, node), **given)

    def _question(self, node: YamlNode) -> StoryQuestion:
        one_of = self._one_of
        keys = {"text": TEXT, "as": one_of("principal"), "event": one_of("event"), "attribute": TEXT}
        return StoryQuestion(*node.record(keys, keys).values())

    def _map(self, node: YamlNode) -> StoryMap:
        fields = node.fields(("thing", "column", "place", "names"), ("thing", "column", "place"))
        names = {name: _known(inner, self.relations, "relation") for name, inner in fields.entries("names")}
        return StoryMap(names=names, **fields.given(thing=TEXT, column=TEXT, place=TEXT))

    def _detection(self, id: str, node: YamlNode) -> str:
        if id not in self.detections:
            node.refuse(f"no detection `{brief(id)}`", "its id is that of a `detect` step")
        return id

    def _exhibit(self, node: YamlNode) -> Exhibit:
        fields = node.fields(("title", "columns", *_EXHIBITS), ("title",))
        title, kinds = fields["title"].text(), [key for key in _EXHIBITS if key in fields]
        if len(kinds) != 1:
            known = ", ".join(f"`{key}`" for key in _EXHIBITS)
            node.refuse("one thing is shown under one title", f"write one of {known}")
        shown = fields[kinds[0]]
        match kinds[0]:
            case "checks":
                columns = fields.maybe("columns", several_of(TEXT)) or ()
                checks = tuple(self._check(inner, len(columns)) for inner in shown.sequence())
                return Exhibit(title, "checks", columns=columns, checks=checks)
            case "roles":
                if shown.flag() is not True:
                    shown.refuse("the roles are shown or not", "write `roles: true`, or leave it out")
                return Exhibit(title, "roles")
            case kind:
                return Exhibit(title, kind, several_of(self._one_of("statement"))(shown))

    def _check(self, node: YamlNode, columns: int) -> ShownCheck:
        principal, statement = self._one_of("principal"), self._one_of("statement")
        fields = node.fields(("words", "broker", "server", "anchor", "provider", "type"), ("words",))
        words = several_of(TEXT)(fields["words"])
        if len(words) != columns:
            fields["words"].refuse(f"{len(words)} words for {columns} `columns`")
        if sorted(fields.keys() - {"words"}) not in (["broker"], ["type"], ["anchor", "provider", "server"]):
            remedy = "write `broker`, `type`, or `server` with its `provider` and `anchor`"
            node.refuse("it does not say what is checked", remedy)
        given = fields.given(
            broker=several_of(statement),
            server=statement,
            anchor=principal,
            provider=principal,
            type=self._one_of("type"),
        )
        return ShownCheck(words, **given)

    def _one_of(self, what: str) -> Callable[[YamlNode], str]:
        """Reads the name of something of the file."""
        return lambda node: _known(node, getattr(self, f"{what}s"), what)

    def _subscription(self, id: str, node: YamlNode) -> str:
        if id not in self.subscriptions:
            node.refuse(f"no subscription `{brief(id)}`", "its id is that of a `subscribe` step")
        return id


def _try(node: YamlNode) -> tuple[Any, ...]:
    keys = {"command": TEXT, "what": TEXT}
    return tuple(node.record(keys, keys).values())


def _known(node: YamlNode, names: Collection[str], what: str) -> str:
    if node.text() not in names:
        node.refuse(f"no {what} `{brief(node.data)}` in the file")
    return node.text()
