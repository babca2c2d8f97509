"""YAML as scenario files use it: YAML 1.2's core schema, with the line and key of everything.

Guarantees: any bytes give a `YamlNode` or a `BadScenario` that names file and line. Only `true` and `false`, numbers
and `null` are anything but text, so `NO`, `on`, `12:30` and dates stay as written. A key given twice is refused.
Aliases are followed, but never to more than `MAX_NODES` nodes in all.
Leaves out: merge keys, tags other than the core schema's, several documents in one file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, overload

import yaml

from headgate.model.errors import BadDefinition, BadScenario
from headgate.model.types import check_name
from headgate.model.values import brief

MAX_NODES: Final = 200_000
"""Values of one file, aliases followed."""

MAX_DEPTH: Final = 50
"""Nesting of one file."""

T = TypeVar("T")
Scalar: TypeAlias = bool | int | float | str | None
Reader: TypeAlias = Callable[["YamlNode"], T]
"""Gives what a value of a file stands for, or refuses it."""

_LINE: Final = re.compile(r"\bline ([1-9][0-9]{0,8})\b")
_TAG: Final = "tag:yaml.org,2002:"
_NULL: Final = re.compile(r"(?:null|Null|NULL|~|)\Z")
_BOOL: Final = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT: Final = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT: Final = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where something stands: `file.yaml:12: key steps[3].publish.at`.

    `text` is the line on which the first line of a text stands, if each line of the text is a line of the file; else 0.
    """

    file: str
    line: int
    key: str = ""
    text: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f": key `{self.key}`" if self.key else "")

    def inside(self, where: str | None) -> str:
        """A place that was found inside the text: `..., line 2` as a line of the file where that can be told."""
        line = _LINE.search(where or "")
        if line is None:
            return str(self)
        if not self.text:
            return f"{self}, {line[0]}"
        return str(replace(self, line=self.text + int(line[1]) - 1))


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A value of a file with its place. `data` is a scalar, a tuple of nodes, or a dict of nodes by key."""

    data: Scalar | tuple[YamlNode, ...] | dict[Scalar, YamlNode]
    place: SourcePlace
    size: int = 1

    def refuse(self, message: str, remedy: str | None = None) -> NoReturn:
        """Say that the file is wrong here."""
        raise BadScenario(message, place=str(self.place), remedy=remedy)

    # Each of these gives the value as one kind, or refuses it.

    def text(self) -> str:
        """Text that is not empty."""
        if not isinstance(self.data, str):
            hint = f"put it in quotes: `'{self.data}'`" if isinstance(self.data, int | float) else None
            self.refuse(f"{self._shown()} is not text", hint)
        if not self.data:
            self.refuse("the text is empty")
        if not self.data.isascii() and any("\ud800" <= c <= "\udfff" for c in self.data):
            self.refuse(f"`{brief(self.data)}` holds half a character (a lone surrogate)")
        return self.data

    def name(self) -> str:
        """Text that can name something."""
        try:
            return check_name("given", self.text())
        except BadDefinition as error:
            self.refuse(error.message)

    def flag(self) -> bool:
        """`true` or `false`."""
        if not isinstance(self.data, bool):
            self.refuse(f"{self._shown()} is neither `true` nor `false`")
        return self.data

    def integer(self) -> int:
        """A whole number."""
        if isinstance(self.data, bool) or not isinstance(self.data, int):
            self.refuse(f"{self._shown()} is not a whole number")
        return self.data

    def scalar(self) -> Scalar:
        """Text, a number, `true`, `false` or `null`."""
        if isinstance(self.data, tuple | dict):
            self.refuse(f"{self._shown()} is not a single value")
        return self.data

    def sequence(self) -> tuple[YamlNode, ...]:
        """A list."""
        if not isinstance(self.data, tuple):
            self.refuse(f"{self._shown()} is not a list", "write `[...]`, or `- ` before each item")
        return self.data

    def several(self) -> tuple[YamlNode, ...]:
        """The items of a list, or the one thing that stands in its place."""
        return self.data if isinstance(self.data, tuple) else (self,)

    def mapping(self) -> dict[str, YamlNode]:
        """A mapping whose keys are text."""
        if not isinstance(self.data, dict):
            self.refuse(f"{self._shown()} is not a mapping", "write `key: value`")
        entries = {}
        for key, node in self.data.items():
            if not isinstance(key, str) or not key:
                node.refuse(f"the key `{brief(key)}` is not text", "put it in quotes")
            entries[key] = node
        return entries

    def fields(self, known: Collection[str], required: Collection[str] = ()) -> YamlFields:
        """A mapping with these keys and no others."""
        entries = self.mapping()
        for key, node in entries.items():
            if key not in known:
                node.refuse(f"unknown key `{brief(key)}`", nearest(key, known))
        for key in required:
            if key not in entries:
                self.refuse(f"the key `{key}` is missing")
        return YamlFields(entries)

    def record(self, readers: Mapping[str, Reader[Any]], required: Collection[str] = ()) -> dict[str, Any]:
        """A mapping with these keys and no others, each that is given as its reader has it."""
        return self.fields(readers, required).given(**readers)

    def plain(self) -> Any:
        """The data without places."""
        match self.data:
            case tuple():
                return [node.plain() for node in self.data]
            case dict():
                return {key: node.plain() for key, node in self.data.items()}
            case _:
                return self.data

    def _shown(self) -> str:
        match self.data:
            case tuple():
                return "a list"
            case dict():
                return "a mapping"
            case None:
                return "nothing (`null`)"
            case bool():
                return f"`{str(self.data).lower()}`"
            case _:
                return f"`{brief(self.data)}`"


class YamlFields(dict[str, YamlNode]):
    """The keys of a mapping that a file gives."""

    def given(self, **readers: Reader[Any]) -> dict[str, Any]:
        """What is given of these keys, each as its reader has it: arguments for what has defaults."""
        return {key: read(self[key]) for key, read in readers.items() if key in self}

    @overload
    def maybe(self, key: str, read: Reader[T]) -> T | None: ...
    @overload
    def maybe(self, key: str, read: Reader[T], default: T) -> T: ...
    def maybe(self, key: str, read: Reader[T], default: T | None = None) -> T | None:
        """A key as its reader has it; where it is left out, the default."""
        return read(self[key]) if key in self else default

    def each(self, key: str) -> tuple[YamlNode, ...]:
        """The items of a list; none where it is left out."""
        return self[key].sequence() if key in self else ()

    def entries(self, key: str) -> Iterable[tuple[str, YamlNode]]:
        """The entries of a mapping; none where it is left out."""
        return self[key].mapping().items() if key in self else ()


TEXT: Final = YamlNode.text
NAME: Final = YamlNode.name
FLAG: Final = YamlNode.flag
INTEGER: Final = YamlNode.integer


def several_of(read: Reader[T]) -> Reader[tuple[T, ...]]:
    """Reads a list of such values."""
    return lambda node: tuple(map(read, node.sequence()))


def nearest(key: str, known: Collection[str]) -> str:
    """The known key that was perhaps meant, and all of them."""
    near = difflib.get_close_matches(key, known, n=1)
    every = f"known keys: {', '.join(f'`{k}`' for k in known)}"
    return f"perhaps `{near[0]}`; {every}" if near else every


def load_yaml(path: Path) -> YamlNode:
    """The one document of a file."""
    name = str(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadScenario(f"cannot read it: {error.strerror or error}", place=name) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"byte `{raw[error.start]:#04x}` is not UTF-8"
        raise BadScenario(message, place=f"{name}:{line}", remedy="save the file as UTF-8") from None
    return parse_yaml(text, name)


def parse_yaml(text: str, name: str) -> YamlNode:
    """The one document of a text; `name` is the file's name in messages."""
    try:
        return _Composer(name).compose(yaml.parse(text, Loader=yaml.CSafeLoader))
    except (yaml.YAMLError, AttributeError):
        pass  # the slow parser reads JSON's surrogate escapes too, and has the better messages
    try:
        return _Composer(name).compose(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(filter(None, (error.context, error.problem)))
        place = f"{name}:{mark.line + 1}" if mark else name
        raise BadScenario(f"it is not YAML: {brief(said)}", place=place) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = text[error.position : error.position + 1]
        raise BadScenario(
            f"the character `{character.encode('unicode_escape').decode()}` is not allowed in YAML",
            place=f"{name}:{line}",
            remedy="write it as an escape in double quotes",
        ) from None


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    event: Any
    place: SourcePlace
    items: list[YamlNode]
    entries: dict[Scalar, YamlNode]
    key: YamlNode | None = None


class _Composer:
    """From parser events to nodes, without recursion."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.open: list[_Open] = []
        self.anchors: dict[str, YamlNode] = {}
        self.root: YamlNode | None = None

    def compose(self, events: Iterator[Any]) -> YamlNode:
        documents = 0
        for event in events:
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        self._refuse(event, "the file holds more than one document", "keep one scenario a file")
                case yaml.ScalarEvent():
                    place = replace(self._place(event), text=_first_line(event))
                    self._put(event, YamlNode(self._scalar(event, place), place))
                case yaml.AliasEvent():
                    self._alias(event)
                case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                    self._check_tag(event, "seq" if isinstance(event, yaml.SequenceStartEvent) else "map")
                    if len(self.open) >= MAX_DEPTH:
                        self._refuse(event, f"it nests deeper than MAX_DEPTH ({MAX_DEPTH})")
                    self.open.append(_Open(event, self._place(event), [], {}))
                case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                    done = self.open.pop()
                    inside = [*done.items, *done.entries.values()]
                    size = 1 + sum(node.size for node in inside)
                    is_list = isinstance(event, yaml.SequenceEndEvent)
                    self._put(done.event, YamlNode(tuple(done.items) if is_list else done.entries, done.place, size))
        if self.root is None or (self.root.data is None and self.root.size == 1):
            raise BadScenario("the file is empty", place=self.name, remedy="a scenario begins with `headgate: 1`")
        return self.root

    def _place(self, event: Any) -> SourcePlace:
        keys = ""
        for level in self.open:
            if isinstance(level.event, yaml.SequenceStartEvent):
                keys += f"[{len(level.items)}]"
            elif level.key is not None:
                shown = brief(level.key.data)
                keys += f".{shown}" if keys else shown
        return SourcePlace(self.name, event.start_mark.line + 1, keys)

    def _refuse(self, event: Any, message: str, remedy: str | None = None) -> NoReturn:
        raise BadScenario(message, place=str(self._place(event)), remedy=remedy)

    def _put(self, event: Any, node: YamlNode) -> None:
        """Give a finished node to what holds it."""
        self.size += 1
        self._check_size(event)
        if event.anchor is not None and not isinstance(event, yaml.AliasEvent):
            self.anchors[event.anchor] = node
        if not self.open:
            self.root = node
            return
        level = self.open[-1]
        if isinstance(level.event, yaml.SequenceStartEvent):
            level.items.append(node)
        elif level.key is None:
            if isinstance(node.data, tuple | dict):
                node.refuse("a list or mapping cannot be a key")
            level.key = node
        else:
            # 1, 1.0 and true are one key to Python, and a scenario has no use for any of them.
            if level.key.data in level.entries:
                first = level.entries[level.key.data].place.line
                node.refuse(f"the key `{brief(level.key.data)}` is given twice", f"it is on line {first} already")
            # The place of a value is that of its key, even where it begins on the next line or is an alias.
            place = replace(self._place(event), line=level.key.place.line, text=node.place.text)
            level.entries[level.key.scalar()] = replace(node, place=place)
            level.key = None

    def _alias(self, event: Any) -> None:
        node = self.anchors.get(event.anchor)
        if node is None:
            self._refuse(event, f"the alias `*{brief(event.anchor)}` names nothing before it")
        self.size += node.size
        self._put(event, node)

    def _check_size(self, event: Any) -> None:
        if self.size > MAX_NODES:
            self._refuse(event, f"the file holds more than MAX_NODES ({MAX_NODES}) values, aliases followed")

    def _check_tag(self, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", _TAG + kind):
            self._refuse(event, f"the tag `{brief(event.tag)}` has no meaning here", "leave it out")

    def _scalar(self, event: Any, place: SourcePlace) -> Scalar:
        text: str = event.value
        plain = event.implicit[0]
        if event.tag in ("!", _TAG + "str") or (event.tag is None and not plain):
            return _joined(text)
        if event.tag is None or plain:
            return _resolved(text, place)
        wanted = {"null": _NULL, "bool": _BOOL, "int": _INT, "float": _FLOAT}.get(event.tag.removeprefix(_TAG))
        if wanted is None or not event.tag.startswith(_TAG):
            self._refuse(event, f"the tag `{brief(event.tag)}` has no meaning here", "leave it out")
        if not wanted.match(text):
            self._refuse(event, f"`{brief(text)}` does not fit its tag `{event.tag}`")
        value = _resolved(text, place)
        return float(value) if wanted is _FLOAT and isinstance(value, int) else value


def _first_line(event: Any) -> int:
    """The line on which a text begins whose lines are lines of the file: a literal block, or one line."""
    begins = int(event.start_mark.line) + 1
    if event.style == "|":
        return begins + 1
    return begins if event.style != ">" and event.end_mark.line == event.start_mark.line else 0


def _resolved(text: str, place: SourcePlace) -> Scalar:
    """A plain scalar by the core schema."""
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text[0] in "tT"
    if _INT.match(text):
        try:
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        except ValueError:
            raise BadScenario(f"the number `{brief(text)}` is too long", place=str(place)) from None
    if _FLOAT.match(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return _joined(text)


def _joined(text: str) -> str:
    """Text in which a pair of surrogate escapes, as JSON writes them, is the one character it stands for."""
    if text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
