"""What a story has declared so far, on its own clock: names, statements, and what services of other domains do.

Guarantees: every principal, group, rule, type, service, role and credential that is read here is of the file; those
that a later step may declare are looked for when all steps are read (`finish`). What a step shows, revokes or lets end
is known when the file is read, because no such step hangs on how the story goes. Each issuer's revocation lists are
numbered as its steps come, and every list has all that it revoked. What a service of another domain says is taken up by
the same changes as a message of a peer (OASIS 4.9, 4.10): it is heard all the time, until a step lets it fall silent;
when it is heard again, everything is known at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from headgate.lang.rolefile import parse_argument, parse_role
from headgate.model.authority import Certificate, Identity, RevocationList
from headgate.model.changes import Change, HearPeer, Identify, MirrorRole, Present, Revoke, SetPeer
from headgate.model.errors import HeadgateError
from headgate.model.expressions import Argument, Constant, RoleRef, Term, Variable
from headgate.model.rolefiles import Rolefile
from headgate.model.roles import Peer, Reference, reference
from headgate.model.state import State
from headgate.model.types import Catalog
from headgate.model.values import EPOCH, brief, render_timestamp
from headgate.roles.rolefiles.types import types_of
from headgate.scenario.format.authority import Keys, read_time
from headgate.scenario.format.declared import Placed, RuleIds, parsed
from headgate.scenario.format.yamlfile import YamlFields, YamlNode

DENIED: Final = "(denied)"
"""The id of what is to be denied and has none."""
_ALL_THE_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""When a service was last heard that is heard without a pause."""
_SET: Final = re.compile(r"\{\s*[^\W\d_]*\s*\}\Z")


@dataclass(slots=True)
class StoryRegister:
    """What is declared, how far the story has come by its own clock, and what names mean then."""

    state: State
    """What the top of the file makes."""
    keys: Keys
    ids: RuleIds
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    identities: Mapping[str, Identity] = field(default_factory=dict)
    forged: frozenset[str] = frozenset()
    clock: datetime = EPOCH
    lists: dict[str, RevocationList] = field(default_factory=dict)
    untils: set[datetime] = field(default_factory=set)
    """When memberships and elections end that steps have said an end of."""
    types: Catalog = field(default_factory=Catalog)
    """Every type that there ever was."""
    rolefiles: dict[str, Rolefile] = field(default_factory=dict)
    sizes: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    """How many arguments the roles have that are ever defined, or given."""

    events: dict[str, str] = field(default_factory=dict)
    """The events that are sent, each with its type."""
    subscriptions: set[str] = field(default_factory=set)
    detections: set[str] = field(default_factory=set)
    published: dict[str, str] = field(default_factory=dict)
    """The type that a detection publishes, by its id."""
    reserved: dict[tuple[str, str], tuple[datetime, datetime]] = field(default_factory=dict)
    """When a reservation was made, and until when it lasts, by its principal and id."""
    shown: set[str] = field(default_factory=set)
    """The signed statements that are shown."""
    credentials: set[str] = field(default_factory=set)
    """The ids of memberships and elections that steps declare."""
    lines: list[YamlFields] = field(default_factory=list)
    """The narrator's keys of each step, which may name what later steps declare."""
    unsubscribed: list[YamlNode] = field(default_factory=list)
    named: list[YamlNode] = field(default_factory=list)
    """Where memberships and elections are named."""
    meant: list[tuple[YamlNode, RoleRef]] = field(default_factory=list)
    """Where roles are named that something must give."""

    silent: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    """Since when services of other domains are silent, and until when that is borne."""
    mirrored: dict[str, MirrorRole] = field(default_factory=dict)
    """The roles that services of other domains have given, by id."""
    records: dict[tuple[str, Reference], bool] = field(default_factory=dict)
    """What each of those services knows of its records."""
    messages: int = 0

    asked: set[str] = field(default_factory=set)
    """The ids of all that is asked for, also where it must be denied; events about audited roles have these."""
    said: set[str] = field(default_factory=set)
    """Text that was given as an argument of a role."""
    values: set[str] = field(default_factory=set)
    """What is in groups, or comes into one, and is no principal."""

    denying: bool = False
    """Is it a step that is to be denied? Then types, rules, services and roles need not be there."""
    nameless: int = 0

    def __post_init__(self) -> None:
        if not self.denying:
            self.types = self.state.types
            self.values.update(one for group in self.state.groups for one in self.state.values_of(group))
            for service, rolefile in self.state.roles.rolefiles.items():
                self.learn(service, rolefile)

    def denied(self) -> StoryRegister:
        """The register for a step that is to be denied: nothing stays of it but what it asks for, and says."""
        own = (
            *("lists", "untils", "rolefiles", "sizes", "events", "subscriptions", "detections", "published", "shown"),
            *("credentials", "lines"),
            *("unsubscribed", "named", "meant", "silent", "mirrored", "records"),
        )
        return replace(self, denying=True, **{name: copy(getattr(self, name)) for name in own})

    def learn(self, service: str, rolefile: Rolefile | None) -> None:
        """From now on a service has another rolefile."""
        if rolefile is None:
            self.rolefiles.pop(service, None)
            return
        self.rolefiles[service] = rolefile
        for one in rolefile.statements:
            self.sized(service, one.head.role, len(one.head.args))
        for each in rolefile.declarations:
            self.sized(service, each.role, len(each.parameters))

    def sized(self, service: str, role: str, size: int) -> None:
        """A role has so many arguments."""
        self.sizes[service, role] = (*self.sizes.get((service, role), ()), size)

    def finish(self) -> None:
        """Refuse what no step declares, and claims about roles that nothing could ever give."""
        for node in self.unsubscribed:
            if node.text() not in self.subscriptions | self.detections:
                node.refuse(f"no subscription `{brief(node.data)}`", "its id is that of a `subscribe` step")
        for node in self.named:
            if node.text() not in self.credentials:
                node.refuse(
                    f"no statement, membership or election `{brief(node.data)}`",
                    "its id is that of a `grant`, `enter` or `elect` step, or of a certificate or identity",
                )
        for node, ref in self.meant:
            sizes = self.sizes.get((str(ref.service), ref.role), ())
            role, service = brief(ref.role), brief(str(ref.service))
            if not sizes:
                node.refuse(f"nothing gives the role `{role}` of `{service}`", "see `roles`, and the `grant` steps")
            if len(ref.args) > max(sizes):
                node.refuse(f"`{role}` has {max(sizes)} arguments, not {len(ref.args)}", "leave out the rest")

    # -- principals, members, types and rules -----------------------------------------------------------------

    def principal(self, node: YamlNode) -> str:
        """A principal."""
        if node.text() not in self.state.principals:
            node.refuse(f"no principal `{brief(node.data)}`", "declare it in `principals`")
        return node.text()

    def check_principal_or_group(self, node: YamlNode) -> None:
        """Refuse any other."""
        if node.text() not in self.state.principals and node.text() not in self.state.groups:
            node.refuse(f"no principal or group `{brief(node.data)}`", "declare it in `principals` or `groups`")

    def is_value(self, node: YamlNode, *, comes: bool) -> bool:
        """Is a member a value: text that no principal or group is called? One that leaves is in the file before."""
        member = node.text()
        if member in self.state.principals or member in self.state.groups:
            return False
        if comes:
            self.values.add(member)
        elif member not in self.values and not self.denying:
            node.refuse(f"no principal, group or value `{brief(member)}`", "it is in no group of the file")
        return True

    def type_name(self, node: YamlNode) -> str:
        """A type that is declared by now."""
        if not self.denying and node.text() not in self.types:
            node.refuse(f"no type `{brief(node.data)}`", "declare it in `types`")
        return node.text()

    def rule_id(self, node: YamlNode) -> str:
        """The id of a rule."""
        if node.text() not in self.ids.declared and not self.denying:
            node.refuse(f"no rule `{brief(node.data)}`", "give the rule an `id`")
        return node.text()

    # -- roles and credentials --------------------------------------------------------------------------------

    def peer(self, node: YamlNode) -> Peer:
        """A service of another domain."""
        peer = self.state.roles.peers.get(node.text())
        if peer is None:
            node.refuse(f"no service of another domain `{brief(node.data)}`", "declare it in `peers`")
        return peer

    def check_role(self, fields: YamlFields) -> None:
        """Refuse a `role` that no rolefile of its `service` defines."""
        service, role = fields["service"].text(), fields["role"].text()
        rolefile = self.rolefiles.get(service)
        if self.denying:
            return
        if rolefile is None:
            fields["service"].refuse(f"no service `{brief(service)}` has a rolefile", "write one in `roles`")
        if role not in rolefile.roles:
            known = ", ".join(f"`{name}`" for name in sorted(rolefile.roles))
            fields["role"].refuse(f"`{service}` has no role `{brief(role)}`", f"it has {known}")

    def check_role_of(self, rule: YamlNode) -> None:
        """Whom a rule is for, if that is said by role; a service without a rolefile has whatever roles it gives."""
        role = rule.mapping().get("role")
        ref = None if role is None or self.denying else parsed(role, parse_role)
        if role is not None and ref is not None and ref.service in self.rolefiles:
            self.meant.append((role, ref))

    def roles(self, node: YamlNode) -> tuple[RoleRef, ...]:
        """Roles that are required, one or several."""
        return tuple(self.meaning(parsed(one, parse_role)) for one in node.several())

    def meaning(self, ref: RoleRef) -> RoleRef:
        """A role as an author means it: an identifier that names a principal, or that was given as an argument, is it.

        Nothing here binds variables, so that one in whose place a name of the story stands is that name without quotes.
        """

        def settled(term: Term) -> Term:
            if isinstance(term, Variable) and (term.name in self.state.principals or term.name in self.said):
                return Constant(term.name)
            return term

        return replace(ref, args=tuple(map(settled, ref.args)))

    def declared(self, fields: YamlFields) -> str:
        """The id of a credential that is asked for; nothing in the file can speak of one without."""
        if "id" not in fields:
            self.nameless += 1
            id = DENIED if self.denying else f"unnamed {self.nameless}"
        else:
            id = fields["id"].name()
            if self.knows(id) and not self.denying:
                fields["id"].refuse(f"`{brief(id)}` is the id of a signed statement already", "choose another")
            self.credentials.add(id)
        self.asked.add(id)
        return id

    def credential(self, node: YamlNode) -> str:
        """The id of a membership or an election, which a later step may declare."""
        self.named.append(node)
        return node.text()

    def counted(self, node: YamlNode) -> tuple[str, ...]:
        """Memberships and elections that count."""
        return tuple(dict.fromkeys(map(self.credential, node.sequence())))

    def until(self, node: YamlNode) -> datetime:
        """When a membership or an election ends."""
        self.untils.add(read_time(node))
        return read_time(node)

    def arguments(self, fields: YamlFields) -> tuple[Argument, ...] | None:
        """The `args` of a `role`, in order, or by the names that a `def` gives them.

        None for one that is left open, or for all.
        """
        if "args" not in fields:
            return None
        node, role = fields["args"], fields["role"].text()
        rolefile = self.rolefiles.get(fields["service"].text())
        nodes: list[YamlNode | None] = [*node.several()]
        if isinstance(node.data, dict):
            declared = next((one for one in rolefile.declarations if one.role == role), None) if rolefile else None
            if declared is None:
                node.refuse(f"no `def` says what the arguments of `{brief(role)}` are called", "write them as a list")
            given = node.fields(declared.parameters)
            nodes = [given.get(name) for name in declared.parameters]
        self.said.update(one.data for one in nodes if one is not None and isinstance(one.data, str))
        types = () if rolefile is None else types_of(rolefile).get(role, ())
        typed = [place < len(types) and types[place] is not None for place in range(len(nodes))]
        return tuple(None if one is None else _argument(one, known) for one, known in zip(nodes, typed, strict=True))

    # -- statements -------------------------------------------------------------------------------------------

    def knows(self, id: str) -> bool:
        """Is it the id of a statement?"""
        return id in self.certificates or id in self.identities

    def find(self, node: YamlNode) -> Certificate | Identity:
        """The statement that is named."""
        statement = self.certificates.get(node.text()) or self.identities.get(node.text())
        if statement is None:
            node.refuse(f"no statement `{brief(node.data)}`", "declare it in `certificates` or `identities`")
        return statement

    def shows(self, principal: str, nodes: Sequence[YamlNode]) -> tuple[Change, ...]:
        """The changes by which a principal shows statements now: its certificates, and then who it is."""
        statements = [self.find(node) for node in nodes]
        certificates = tuple(one for one in statements if isinstance(one, Certificate))
        changes: list[Change] = [Present(principal, certificates, self.clock)] if certificates else []
        changes += [Identify(principal, one, self.clock) for one in statements if isinstance(one, Identity)]
        return tuple(changes)

    def revoked(self, node: YamlNode) -> Revoke:
        """The issuer's next list, with this statement on it."""
        one = self.find(node)
        known = self.lists.get(one.issuer) or RevocationList(one.issuer, 0, self.clock, frozenset())
        return self._listed(replace(known, number=known.number + 1, revoked=known.revoked | {one.id}))

    def heard(self, node: YamlNode) -> Revoke:
        """The issuer's list as it was: a sign of life."""
        issuer = self.keys.read(node)
        return self._listed(self.lists.get(issuer) or RevocationList(issuer, 1, self.clock, frozenset()))

    def _listed(self, made: RevocationList) -> Revoke:
        self.lists[made.issuer] = replace(made, issued=self.clock)
        return Revoke(self.lists[made.issuer], self.clock)

    # -- the clock --------------------------------------------------------------------------------------------

    def advance(self, node: YamlNode) -> tuple[datetime, ...]:
        """Move the clock, or leave it where it is; the distinct times on the way at which something declared ends."""
        to = read_time(node)
        if to < self.clock:
            at = f"{(self.clock - EPOCH).total_seconds():g} ({render_timestamp(self.clock)})"
            node.refuse(
                f"the clock stands at {at} already, and never goes back",
                "write the time it moves to: seconds since the beginning of the story, or ISO 8601",
            )
        passed = sorted({at for at in self._ends() if self.clock < at <= to})
        self.clock = to
        return tuple(passed)

    def _ends(self) -> Iterator[datetime]:
        spans = [one.validity for one in self.certificates.values()]
        spans += [one.validity for one in self.identities.values()]
        yield from (span.until for span in spans if span.until is not None)
        yield from self.untils
        yield from (borne for _, borne in self.silent.values())
        for each in self.certificates.values():
            if each.freshness is not None and each.issuer in self.lists:
                yield self.lists[each.issuer].issued + timedelta(seconds=each.freshness)

    # -- services of other domains ----------------------------------------------------------------------------

    def mirror(self, request: MirrorRole) -> MirrorRole:
        """A role that such a service gives; while it is silent nothing is known of it."""
        self.messages += 1
        state = None if request.peer in self.silent else True
        made = replace(request, remote=reference(self.messages, 1), state=state)
        self.mirrored[made.id], self.records[made.peer, made.remote] = made, True
        return made

    def unmirror(self, id: str) -> tuple[Change, ...]:
        """Such a service revokes what it gave; that is known when it is heard."""
        mirror = self.mirrored[id]
        self.records[mirror.peer, mirror.remote] = False
        return () if mirror.peer in self.silent else (self._message(mirror.peer, {mirror.remote: False}),)

    def silence(self, peer: Peer) -> tuple[Change, ...]:
        """Such a service is not heard any more."""
        since, _ = self.silent.get(peer.name, (self.clock, None))
        self.silent[peer.name] = since, since + timedelta(seconds=peer.bound)
        return (SetPeer(replace(peer, heard=since)),)

    def speak(self, peer: Peer) -> tuple[Change, ...]:
        """Such a service is heard again, and says all that it has to say."""
        self.silent.pop(peer.name, None)
        states = {record: state for (of, record), state in self.records.items() if of == peer.name}
        return (self._message(peer.name, states, _ALL_THE_TIME),)

    def _message(self, peer: str, states: Mapping[Reference, bool], heard: datetime | None = None) -> HearPeer:
        self.messages += 1
        return HearPeer(peer, self.messages, states, heard or self.clock)


def _argument(node: YamlNode, typed: bool) -> Argument:
    """A value as it is written; a list of letters, and what YAML makes of `{rw}`, are sets."""
    match node.data:
        case tuple():
            return frozenset(one.text() for one in node.data)
        case dict():
            if len(node.data) > 1 or any(one.data is not None for one in node.data.values()):
                node.refuse("a mapping is no argument of a role", "write a set like `{rw}`, or as a list of letters")
            return frozenset("".join(node.mapping()))
        case str(text) if not typed and _SET.match(text):
            try:
                return parse_argument(node.text())
            except HeadgateError as error:
                node.refuse(error.message, error.remedy)
        case _:
            return node.scalar()


def read_peers(top: YamlFields) -> list[Placed]:
    """The changes that `peers` asks for."""
    changes: list[Placed] = []
    for name, node in top.entries("peers"):
        bound = node.fields(("silence",), required=("silence",))["silence"].integer()
        changes.append((SetPeer(Peer(name, name, name, bound, heard=_ALL_THE_TIME)), node.place))
    return changes
