"""The steps of a scenario file that ask something of a role service, and what `assert` claims of roles.

Guarantees: services, roles, principals and credentials that a step names are declared in the file, by a rolefile or by
another step; a step that must be refused may name others. An `assert` that could never fail, because nothing has such a
role, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from headgate.lang.render import render_membership
from headgate.lang.rolefile import parse_argument, parse_role, parse_rolefile
from headgate.model import changes
from headgate.model.errors import HeadgateError
from headgate.model.expressions import Argument, Constant, Meta, RoleRef, Term, Variable
from headgate.model.rolefiles import Rolefile
from headgate.model.state import State
from headgate.model.values import brief
from headgate.roles.rolefiles.types import types_of, with_times
from headgate.scenario.format.authority import read_time
from headgate.scenario.format.declared import parsed
from headgate.scenario.format.register import PeerSteps, StoryRegister
from headgate.scenario.format.story import Claim, HoldingClaim, OtherStep, RolefileText, RoleStep, StateClaim
from headgate.scenario.format.yamlfile import FLAG, TEXT, YamlFields, YamlNode

GRANT_KEYS: Final = ("id", "service", "role", "args", "to", "instance", "until", "appointment")
ENTER_KEYS: Final = ("id", "service", "role", "args", "as", "with", "instance", "origin")
ELECT_KEYS: Final = ("id", "service", "role", "args", "as", "with", "to", "until", "revoke_on_exit", "instance")
REVOKE_KEYS: Final = ("id", "service", "role", "args", "by", "with", "instance")
OPEN: Final = "_"
"""An argument of a role that is revoked, whatever it is."""
REINSTATE_KEYS: Final = ("service", "role", "args", "as", "with", "instance")
CLAIM_KEYS: Final = ("holds", "lacks", "state")

_DENIED: Final = "(denied)"
_SET: Final = re.compile(r"\{\s*[^\W\d_]*\s*\}\Z")
_STATES: Final[Mapping[object, bool | None]] = {True: True, False: False, "unknown": None}

S = TypeVar("S", changes.RevokeRole, changes.ReinstateRole)


@dataclass(slots=True)
class RoleSteps:
    """Reads steps about roles; `finish` when all are read."""

    state: State
    register: StoryRegister
    principal: Callable[[YamlNode], str]
    peers: PeerSteps
    denying: bool = False
    rolefiles: dict[str, Rolefile] = field(default_factory=dict)
    """The rolefiles as far as the story has come."""
    credentials: set[str] = field(default_factory=set)
    """The ids of memberships and elections that steps declare."""
    asked: set[str] = field(default_factory=set)
    """The ids of all that is asked for, also where it must be denied; events about audited roles have these."""
    _named: list[tuple[YamlNode, str]] = field(default_factory=list)
    _meant: list[tuple[YamlNode, RoleRef]] = field(default_factory=list)
    _said: set[str] = field(default_factory=set)
    """Text that was given as an argument."""
    _nameless: int = 0
    _sizes: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    """How many arguments the roles have that are ever defined, or given."""

    def __post_init__(self) -> None:
        for service, rolefile in self.state.roles.rolefiles.items():
            self.learn(service, rolefile)

    def learn(self, service: str, rolefile: Rolefile | None) -> None:
        """From now on a service has another rolefile."""
        if rolefile is None:
            self.rolefiles.pop(service, None)
            return
        self.rolefiles[service] = rolefile
        for one in rolefile.statements:
            self._sizes.setdefault((service, one.head.role), set()).add(len(one.head.args))
        for each in rolefile.declarations:
            self._sizes.setdefault((service, each.role), set()).add(len(each.parameters))

    # -- steps ------------------------------------------------------------------------------------------------

    def change(self, fields: YamlFields) -> tuple[RolefileText, ...]:
        """Other rolefiles."""
        rolefiles: list[RolefileText] = []
        for service, inner in fields.entries("roles"):
            text = None if inner.data is None else inner.text()
            if not self.denying:
                self.learn(service, None if text is None else parsed(inner, parse_rolefile))
            rolefiles.append(RolefileText(inner.place, service, text))
        return tuple(rolefiles)

    def grant(self, node: YamlNode) -> RoleStep:
        """A service gives a role for its own reasons."""
        fields = node.fields(GRANT_KEYS, ("service", "role", "to"))
        id = self._declare(fields)
        service, role = fields["service"].name(), fields["role"].text()
        args = self._whole(fields, service, role)
        if not self.denying:
            self._sizes.setdefault((service, role), set()).add(len(args))
        if service in self.peers:
            return self._mirror(node, fields, id, args)
        options = fields.given(to=self.principal, instance=TEXT, appointment=FLAG, until=self._until)
        request = changes.GrantRole(id=id, service=service, role=role, args=args, **options)
        return RoleStep(node.place, request, f"grant `{id}`", id=id)

    def _mirror(self, node: YamlNode, fields: YamlFields, id: str, args: tuple[Argument, ...]) -> RoleStep:
        """A service of another domain gives a role, which is known here by its word."""
        for key in fields.keys() & {"until", "appointment"}:
            fields[key].refuse(f"`{key}` is for services of this domain", "leave it out, and revoke the role")
        asked = changes.MirrorRole(
            id=id,
            peer=fields["service"].text(),
            args=args,
            holder=self.principal(fields["to"]),
            remote=0,
            state=True,
            at=self.register.clock,
            **fields.given(role=TEXT, instance=TEXT),
        )
        return RoleStep(node.place, self.peers.grant(asked, keep=not self.denying), f"grant `{id}`", id=id)

    def enter(self, node: YamlNode) -> RoleStep:
        """A client asks to enter a role."""
        fields = node.fields(ENTER_KEYS, ("service", "role", "as"))
        id = self._declare(fields)
        request = changes.EnterRole(id=id, **self._asked(fields, "as"), **fields.given(origin=TEXT))
        return RoleStep(node.place, request, f"enter `{id}`", request.principal, id)

    def elect(self, node: YamlNode) -> RoleStep:
        """A client elects whoever has the required roles."""
        fields = node.fields(ELECT_KEYS, ("service", "role", "as"))
        id, asked = self._declare(fields), self._asked(fields, "as")
        required = fields["to"].several() if "to" in fields else ()
        request = changes.ElectRole(
            id=id,
            required=tuple(self._meaning(parsed(one, parse_role)) for one in required),
            **asked,
            **fields.given(until=self._until, revoke_on_exit=FLAG),
        )
        return RoleStep(node.place, request, f"elect `{id}`", request.principal, id)

    def _asked(self, fields: YamlFields, who: str) -> dict[str, Any]:
        """What is asked of a service by a principal, about a role that a rolefile of the file defines."""
        principal = self.principal(fields[who])
        service, role = self._known_role(fields)
        return {
            "service": service,
            "role": role,
            "args": self._wanted(fields, service, role),
            "principal": principal,
            "using": fields.maybe("with", self.counted),
            "at": self.register.clock,
            **fields.given(instance=TEXT),
        }

    def pass_on(self, node: YamlNode) -> RoleStep:
        """The right to revoke an election goes to another in the elector's role, too."""
        fields = node.fields(("id", "as", "to"), required=("id", "as", "to"))
        id, who, to = fields["id"].name(), self.principal(fields["as"]), self.principal(fields["to"])
        self._name(fields["id"])
        return RoleStep(node.place, changes.PassRevocation(id, who, to), f"pass `{id}`", who, id)

    def revoke(self, node: YamlNode) -> RoleStep | OtherStep:
        """A membership or an election ends; or a role is revoked by whoever holds the revoker's role."""
        fields = node.fields(REVOKE_KEYS)
        if not fields:
            node.refuse(
                "nothing is revoked", "name the `id` of a credential or statement, or a `role` with its `service`"
            )
        if "id" not in fields:
            return self._by_role(node, "by", changes.RevokeRole)
        for key in sorted(fields.keys() - {"id", "by", "with"}):
            fields[key].refuse(f"`id` and `{key}` cannot both be given", "name a credential, or a role")
        fields.given(**{"with": self.counted})  # being in office is looked up, shown or not
        id = fields["id"].name()
        self._name(fields["id"])
        by = fields.maybe("by", self.principal)
        if by is None and id in self.peers.given:
            return self.peers.revoke(node, id, keep=not self.denying)
        return RoleStep(node.place, changes.EndCredential(id, by), f"revoke `{id}`", by, id)

    def reinstate(self, node: YamlNode) -> RoleStep:
        """A role that was revoked by role may be entered again."""
        return self._by_role(node, "as", changes.ReinstateRole)

    def _by_role(self, node: YamlNode, who: str, made: type[S]) -> RoleStep:
        keys = REINSTATE_KEYS if who == "as" else REVOKE_KEYS
        asked = self._asked(node.fields(keys, ("service", "role", who)), who)
        asked["args"] = tuple(None if arg == OPEN else arg for arg in asked["args"] or ())
        request = made(**asked)
        word = "reinstate" if who == "as" else "revoke"
        role = render_membership(request.service, request.instance, request.role, request.args)
        return RoleStep(node.place, request, f"{word} `{role}`", request.principal)

    # -- claims -----------------------------------------------------------------------------------------------

    def claims(self, fields: YamlFields) -> tuple[Claim, ...]:
        """What an `assert` says that holds, is lacking, or is the state of something; each a pair, or several."""
        claims: list[Claim] = []
        for key in CLAIM_KEYS:
            for node in _pairs(fields[key]) if key in fields else ():
                one, other = node.sequence()
                claims.append(self._state(node, one, other) if key == "state" else self._holding(key, one, other))
        return tuple(claims)

    def _holding(self, key: str, who: YamlNode, role: YamlNode) -> HoldingClaim:
        ref = parsed(role, parse_role)
        if ref.service is None:
            role.refuse(f"`{brief(role.data)}` has no service", "write it like `Login.LoggedOn('jmb', h)`")
        if any(isinstance(term, Meta) for term in (*ref.args, ref.instance)):
            role.refuse("`@names` have no meaning here", "write a constant in quotes, or a variable")
        self._meant.append((role, ref))
        try:
            meant = with_times(self._meaning(ref), self.rolefiles.get(ref.service))
        except HeadgateError as error:
            role.refuse(error.message, error.remedy)
        return HoldingClaim(role.place, self.principal(who), meant, key == "holds")

    def _meaning(self, ref: RoleRef) -> RoleRef:
        """A role as an author means it: an identifier that names a principal, or that was given as an argument, is it.

        Nothing here binds variables, so that one in whose place a name of the story stands is that name without quotes.
        """

        def settled(term: Term) -> Term:
            known = isinstance(term, Variable) and (term.name in self.state.principals or term.name in self._said)
            return Constant(term.name) if isinstance(term, Variable) and known else term

        return replace(ref, args=tuple(map(settled, ref.args)))

    def _state(self, node: YamlNode, id: YamlNode, state: YamlNode) -> StateClaim:
        if state.data not in _STATES or type(state.data) not in (bool, str):
            state.refuse(f"`{brief(state.plain())}` is no state", "it is `true`, `false` or `unknown`")
        wanted = _STATES[state.scalar()]
        if self.register.knows(id.text()):
            return StateClaim(node.place, id.text(), wanted, self.register.find(id).key)
        self._name(id)
        return StateClaim(node.place, id.text(), wanted)

    # -- names ------------------------------------------------------------------------------------------------

    def counted(self, node: YamlNode) -> tuple[str, ...]:
        """The memberships that count for a subscription."""
        for one in node.sequence():
            self._name(one)
        return tuple(dict.fromkeys(one.text() for one in node.sequence()))

    def rule(self, node: YamlNode) -> None:
        """Whom a rule is for, if that is said by role; a service without a rolefile has whatever roles it gives."""
        role = node.mapping().get("role")
        ref = None if role is None or self.denying else parsed(role, parse_role)
        if role is not None and ref is not None and ref.service in self.rolefiles:
            self._meant.append((role, ref))

    def finish(self) -> None:
        """Refuse credentials that no step declares, and claims about roles that nothing could ever give."""
        for node, id in self._named:
            if id not in self.credentials:
                node.refuse(
                    f"no statement, membership or election `{brief(id)}`",
                    "its id is that of a `grant`, `enter` or `elect` step, or of a certificate or identity",
                )
        for node, ref in self._meant:
            self._check_meant(node, ref)

    def _check_meant(self, node: YamlNode, ref: RoleRef) -> None:
        service = str(ref.service)
        sizes = self._sizes.get((service, ref.role), set())
        if not sizes:
            node.refuse(
                f"nothing gives the role `{brief(ref.role)}` of `{brief(service)}`",
                "see `roles`, and the `grant` steps",
            )
        if len(ref.args) > max(sizes):
            node.refuse(f"`{brief(ref.role)}` has {max(sizes)} arguments, not {len(ref.args)}", "leave out the rest")

    def _declare(self, fields: YamlFields) -> str:
        if "id" not in fields:  # nothing in the file can speak of it
            self._nameless += 1
            id = _DENIED if self.denying else f"unnamed {self._nameless}"
            self.asked.add(id)
            return id
        id = fields["id"].name()
        self.asked.add(id)
        if not self.denying:
            if self.register.knows(id):
                fields["id"].refuse(f"`{brief(id)}` is the id of a signed statement already", "choose another")
            self.credentials.add(id)
        return id

    def _name(self, node: YamlNode) -> None:
        if not self.denying:
            self._named.append((node, node.text()))

    def _until(self, node: YamlNode) -> datetime:
        until = read_time(node)
        if not self.denying:
            self.register.untils.add(until)
        return until

    def _known_role(self, fields: YamlFields) -> tuple[str, str]:
        """A role that a rolefile of the file defines."""
        service, role = fields["service"].text(), fields["role"].text()
        if self.denying:
            return service, role
        rolefile = self.rolefiles.get(service)
        if rolefile is None:
            fields["service"].refuse(f"no service `{brief(service)}` has a rolefile", "write one in `roles`")
        if role not in rolefile.roles:
            known = ", ".join(f"`{name}`" for name in sorted(rolefile.roles))
            fields["role"].refuse(f"`{service}` has no role `{brief(role)}`", f"it has {known}")
        return service, role

    # -- arguments --------------------------------------------------------------------------------------------

    def _whole(self, fields: YamlFields, service: str, role: str) -> tuple[Argument, ...]:
        """Arguments of which none is left open."""
        arguments = self._wanted(fields, service, role) or ()
        if None in arguments:
            fields["args"].refuse("an argument is left open", "give every argument a value")
        return arguments

    def _wanted(self, fields: YamlFields, service: str, role: str) -> tuple[Argument, ...] | None:
        """Arguments in order, or by the names that a `def` gives them; None for one that is left open, or for all."""
        if "args" not in fields:
            return None
        node = fields["args"]
        nodes = self._in_order(node, service, role) if isinstance(node.data, dict) else list(node.several())
        self._said.update(one.data for one in nodes if one is not None and isinstance(one.data, str))
        rolefile = self.rolefiles.get(service)
        types = () if rolefile is None else types_of(rolefile).get(role, ())
        typed = [place < len(types) and types[place] is not None for place in range(len(nodes))]
        return tuple(None if one is None else _argument(one, known) for one, known in zip(nodes, typed, strict=True))

    def _in_order(self, node: YamlNode, service: str, role: str) -> list[YamlNode | None]:
        rolefile = self.rolefiles.get(service)
        declared = next((one for one in rolefile.declarations if one.role == role), None) if rolefile else None
        if declared is None:
            node.refuse(f"no `def` says what the arguments of `{brief(role)}` are called", "write them as a list")
        given = node.fields(declared.parameters)
        return [given.get(name) for name in declared.parameters]


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
            return _letters(node)
        case _:
            return node.scalar()


def _letters(node: YamlNode) -> Argument:
    try:
        return parse_argument(node.text())
    except HeadgateError as error:
        node.refuse(error.message, error.remedy)


def _pairs(node: YamlNode) -> tuple[YamlNode, ...]:
    """One pair, or a list of them."""
    many = node.sequence()
    pairs = many if many and all(isinstance(one.data, tuple) for one in many) else (node,)
    for one in pairs:
        if len(one.sequence()) != 2:
            one.refuse("it is no pair", 'write `[principal, "Service.Role(args)"]`, or `[id, true]`')
    return pairs
