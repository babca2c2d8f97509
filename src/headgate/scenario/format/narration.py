"""What a narrator says and shows of a scenario: `story` of the file, and `say`, `note` and `show` of its steps.

Guarantees: narration changes nothing that happens; `headgate test` reads past it. Subscriptions, events, statements and
principals that it names are those of the file.
Leaves out: telling it (`headgate demo`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.model.authority import Certificate, Identity
from headgate.model.values import brief
from headgate.scenario.format.yamlfile import YamlNode

LINE_KEYS: Final = ("say", "note", "show")
"""The keys of a step that are for the narrator."""

_STORY_KEYS: Final = (
    "opening", "source", "readers", "asides", "question", "moral", "organisations", "domain", "tries",
)  # fmt: skip
_EXHIBITS: Final = ("chain", "guests", "checks", "roles")


@dataclass(frozen=True, slots=True)
class ChainExhibit:
    """A chain of certificates, from the first issuer to the holder."""

    title: str
    certificates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GuestsExhibit:
    """What became of each attribute of these guests on the way from home, by their statements here."""

    title: str
    identities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """A client verifies the broker that it connects to, by a chain from the coordinator."""

    certificates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """A guest verifies a server: its provider at home, the `anchor`, vouches for the provider of the server."""

    identity: str
    anchor: str
    provider: str


@dataclass(frozen=True, slots=True)
class TypeCheck:
    """A domain verifies the signed definition of a type."""

    type: str


Check: TypeAlias = BrokerCheck | ServerCheck | TypeCheck


@dataclass(frozen=True, slots=True)
class ChecksExhibit:
    """What was verified, a row of words for each check; `columns` are their titles."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], Check], ...]


@dataclass(frozen=True, slots=True)
class RolesExhibit:
    """The credentials at this point, and what each rests on."""

    title: str


Exhibit: TypeAlias = ChainExhibit | GuestsExhibit | ChecksExhibit | RolesExhibit


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
class Narration:
    """How a scenario is told, from the first sentence to the last.

    `asides` are sentences about the `{count}` of events that a subscription without a column received.
    `organisations` have directories with the keys of some principals, and `domain` is the one that the domain is in.
    `tries` are commands for afterwards, with `{dir}` for the directory of the story, and what each is for.
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


@dataclass(frozen=True, slots=True)
class StoryNames:
    """The names of a file that its narration may use."""

    principals: Collection[str]
    subscriptions: Collection[str]
    events: Mapping[str, str]
    statements: Mapping[str, Certificate | Identity]
    types: Collection[str]


def read_narration(node: YamlNode, named: StoryNames) -> Narration:
    """The `story` of a file."""
    fields = node.fields(_STORY_KEYS, ("opening", "source", "readers", "question", "moral"))
    organisations = {
        name: tuple(_known(one, named.principals, "principal") for one in members.sequence())
        for name, members in (fields["organisations"].mapping() if "organisations" in fields else {}).items()
    }
    if organisations and "domain" not in fields:
        node.refuse("the key `domain` is missing", "name the organisation that the domain is in")
    return Narration(
        opening=fields["opening"].text(),
        source=fields["source"].text(),
        readers=tuple(_reader(id, one, named) for id, one in fields["readers"].mapping().items()),
        question=_question(fields["question"], named),
        moral=fields["moral"].text(),
        asides={
            _subscription(id, one, named): one.text()
            for id, one in (fields["asides"].mapping() if "asides" in fields else {}).items()
        },
        organisations=organisations,
        domain=_known(fields["domain"], organisations, "organisation") if "domain" in fields else "",
        tries=tuple(_try(one) for one in (fields["tries"].sequence() if "tries" in fields else ())),
    )


def read_line(fields: Mapping[str, YamlNode], named: StoryNames) -> StoryLine:
    """The narrator's keys of a step."""
    return StoryLine(
        say=fields["say"].text() if "say" in fields else "",
        note=fields["note"].text() if "note" in fields else "",
        show=tuple(_exhibit(one, named) for one in fields["show"].sequence()) if "show" in fields else (),
    )


def _reader(id: str, node: YamlNode, named: StoryNames) -> StoryReader:
    fields = node.fields(("title", "sees", "width"), ("title", "sees"))
    width = fields["width"].integer() if "width" in fields else 0
    return StoryReader(_subscription(id, node, named), fields["title"].text(), fields["sees"].text(), width)


def _question(node: YamlNode, named: StoryNames) -> StoryQuestion:
    fields = node.fields(("text", "as", "event", "attribute"), ("text", "as", "event", "attribute"))
    return StoryQuestion(
        fields["text"].text(),
        _known(fields["as"], named.principals, "principal"),
        _known(fields["event"], named.events, "event"),
        fields["attribute"].text(),
    )


def _try(node: YamlNode) -> tuple[str, str]:
    fields = node.fields(("command", "what"), ("command", "what"))
    return fields["command"].text(), fields["what"].text()


def _exhibit(node: YamlNode, named: StoryNames) -> Exhibit:
    fields = node.fields(("title", "columns", *_EXHIBITS), ("title",))
    title, kinds = fields["title"].text(), [key for key in _EXHIBITS if key in fields]
    if len(kinds) != 1:
        node.refuse("one thing is shown under one title", f"write one of {', '.join(f'`{key}`' for key in _EXHIBITS)}")
    shown = fields[kinds[0]]
    match kinds[0]:
        case "chain":
            return ChainExhibit(title, _statements(shown, named))
        case "guests":
            return GuestsExhibit(title, _statements(shown, named))
        case "checks":
            columns = tuple(one.text() for one in fields["columns"].sequence()) if "columns" in fields else ()
            return ChecksExhibit(title, columns, tuple(_check(one, len(columns), named) for one in shown.sequence()))
        case _:
            if shown.flag() is not True:
                shown.refuse("the roles are shown or not", "write `roles: true`, or leave it out")
            return RolesExhibit(title)


def _check(node: YamlNode, columns: int, named: StoryNames) -> tuple[tuple[str, ...], Check]:
    fields = node.fields(("words", "broker", "server", "anchor", "provider", "type"), ("words",))
    words = tuple(one.text() for one in fields["words"].sequence())
    if len(words) != columns:
        fields["words"].refuse(f"{len(words)} words for {columns} `columns`")
    match sorted(fields.keys() - {"words"}):
        case ["broker"]:
            return words, BrokerCheck(_statements(fields["broker"], named))
        case ["type"]:
            return words, TypeCheck(_known(fields["type"], named.types, "type"))
        case keys if keys != ["anchor", "provider", "server"]:
            remedy = "write `broker`, `type`, or `server` with its `provider` and `anchor`"
            node.refuse("it does not say what is checked", remedy)
    server = _known(fields["server"], named.statements, "statement")
    anchor, provider = (_known(fields[key], named.principals, "principal") for key in ("anchor", "provider"))
    return words, ServerCheck(server, anchor, provider)


def _statements(node: YamlNode, named: StoryNames) -> tuple[str, ...]:
    return tuple(_known(one, named.statements, "statement") for one in node.sequence())


def _subscription(id: str, node: YamlNode, named: StoryNames) -> str:
    if id not in named.subscriptions:
        node.refuse(f"no subscription `{brief(id)}`", "its id is that of a `subscribe` step")
    return id


def _known(node: YamlNode, names: Collection[str], what: str) -> str:
    if node.text() not in names:
        node.refuse(f"no {what} `{brief(node.data)}` in the file")
    return node.text()
