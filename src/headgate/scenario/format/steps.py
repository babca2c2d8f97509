"""The steps of a scenario file: a table of their keys, what reads each key, and what is made of them.

Guarantees: every principal, group, relation, rule, type, subscription, service, role and credential that a step names
is declared in the file, by its top or by a step. A step inside `assert: {denied: ...}` may name types, attributes,
services and roles that do not exist, as that is a reason to deny it, and declares nothing. An `assert` that could never
fail, because nothing has such a role, is refused.

A new step is a row of `STEPS` and a method `step_...` of `StepReader`; a key that no other step has, or that means
something else there, is a row of `READERS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from headgate.lang.render import render_membership
from headgate.lang.rolefile import parse_role, parse_rolefile
from headgate.model import changes
from headgate.model.errors import BadScenario, HeadgateError
from headgate.model.events import Draft
from headgate.model.expressions import Meta
from headgate.model.types import is_pattern
from headgate.model.values import EPOCH, brief
from headgate.roles.rolefiles.types import with_times
from headgate.scenario.format import story
from headgate.scenario.format.authority import OURSELVES, read_time
from headgate.scenario.format.declared import STATED, parsed, read_condition, read_rules, read_type, where
from headgate.scenario.format.narration import LINE_KEYS
from headgate.scenario.format.register import DENIED, StoryRegister
from headgate.scenario.format.yamlfile import FLAG, NAME, TEXT, Reader, YamlFields, YamlNode


def _beginning(node: YamlNode) -> dict[str, Any]:
    """Where a subscription begins: `now`, `start`, a version, a time or a reservation."""
    if node.data == "now":
        return {}
    if node.data == "start":
        return {"history": True}
    remedy = "write `now`, `start`, `{version: 3}`, `{time: ...}`, `{reserved: id}` or a time: seconds, or ISO 8601"
    if isinstance(node.data, dict):
        fields = node.fields(("version", "time", "reserved"))
        if len(fields) != 1:
            node.refuse("a subscription begins at a version, at a time or at a reservation", remedy)
        if "reserved" in fields:
            return {"history": True, "reserved": fields["reserved"].name()}
        if "time" in fields:
            return {"history": True, "since_time": read_time(fields["time"])}
        if fields["version"].integer() < 0:
            fields["version"].refuse(f"`{fields['version'].data}` is not a version", "versions count from 0")
        return {"history": True, "since_version": fields["version"].integer()}
    try:
        return {"history": True, "since_time": read_time(node)}
    except BadScenario:
        node.refuse(f"`{brief(node.plain())}` is not where to begin", remedy)


def _keys(text: str) -> Mapping[str, bool]:
    """Keys, each with whether it must be given: those are marked by `!`."""
    return {key.removesuffix("!"): key.endswith("!") for key in text.split()}


STEPS: Final[Mapping[str, Mapping[str, bool]]] = {
    "subscribe": _keys("id! as! type! where requires from origin with"),
    "unsubscribe": _keys("id!"),
    "publish": _keys("id! as! type! event! requires at time stream origin"),
    "detect": _keys("id! as! expression! bind publishes adds from"),
    "reserve": _keys("id! as! type where expression"),
    "heartbeat": _keys("stream horizon! as"),
    "change": _keys("by add remove groups attributes policy_rules relations roles"),
    "type": {},
    "retire": {},
    "declassify": _keys("by! type! for!"),
    "reclassify": _keys("by! type! for!"),
    "advertise": _keys("as! type!"),
    "unadvertise": _keys("as! type!"),
    "connect": _keys("as! present"),
    "grant": _keys("id service! role! args to! instance until appointment"),
    "enter": _keys("id service! role! args as! with instance origin"),
    "elect": _keys("id service! role! args as! with to until revoke_on_exit instance"),
    "revoke": _keys("id service role args by with instance"),
    "reinstate": _keys("service! role! args as! with instance"),
    "pass": _keys("id! as! to!"),
    "silent": {},
    "heard": {},
    "hear": {},
    "advance": {},
    "crash": {},
    "assert": _keys("denied holds lacks state"),
}
"""The keys of each step that is a mapping of keys."""
READERS: Final[Mapping[str, str | Reader[Any]]] = {
    "id": NAME,
    "as": "principal",
    "by": "principal",
    "to": "principal",
    "elect.to": "roles",
    "type": "type_name",
    "for": "type_name",
    "publish.type": lambda node: node.data if isinstance(node.data, str) else f"({node.plain()!r})",
    "event": YamlNode.plain,
    "where": where,
    "requires": where,
    "from": _beginning,
    "origin": TEXT,
    "with": "counted",
    "at": read_time,
    "time": read_time,
    "horizon": read_time,
    "expression": TEXT,
    "publishes": NAME,
    "adds": TEXT,
    "bind": lambda node: {name: value.scalar() for name, value in node.mapping().items()},
    "stream": NAME,
    "present": YamlNode.sequence,
    "service": TEXT,
    "grant.service": NAME,
    "role": TEXT,
    "instance": TEXT,
    "until": "until",
    "appointment": FLAG,
    "revoke_on_exit": FLAG,
}
"""What reads a key, of all steps or of one alone: a function, or a method of the register.

Whatever is published under something that is no text is the gateway's to refuse: no type has such a name.
"""
OPEN: Final = "_"
"""An argument of a role that is revoked, whatever it is."""

_STATES: Final[Mapping[object, bool | None]] = {True: True, False: False, "unknown": None}


def read_steps(top: YamlFields, register: StoryRegister) -> tuple[story.Step, ...]:
    """The steps, and in the register what they declare; rules of the `policy` may be for roles that steps give."""
    for rule in top.each("policy"):
        register.check_role_of(rule)
    steps = tuple(map(StepReader(register).step, top.each("steps")))
    register.finish()
    return steps


def read_reason(node: YamlNode) -> str:
    """A reason code."""
    if node.text() not in _codes(HeadgateError):
        node.refuse(f"`{brief(node.data)}` is not a reason code", "they are listed in docs/scenario-format.md")
    return node.text()


def _codes(root: type[HeadgateError]) -> set[str]:
    return {root.code}.union(*(_codes(one) for one in root.__subclasses__()))


class StepReader:
    """Reads steps in order, by what the story has declared so far."""

    def __init__(self, names: StoryRegister) -> None:
        self.names = names

    def step(self, node: YamlNode) -> story.Step:
        """One step: a mapping of one key, besides those of the narrator."""
        fields = node.fields((*STEPS,) if self.names.denying else (*STEPS, *LINE_KEYS))
        self.names.lines.append(YamlFields({key: fields.pop(key) for key in LINE_KEYS if key in fields}))
        if len(fields) != 1:
            node.refuse(f"a step has one key, and this has {len(fields)}", f"known steps: {', '.join(STEPS)}")
        ((key, inner),) = fields.items()
        made: story.Step = getattr(self, f"step_{key}")(inner)
        return made

    def _fields(self, step: str, node: YamlNode) -> YamlFields:
        """The keys of a step; of what is to be denied, what is made needs no id."""
        if isinstance(node.data, str) and step in ("unsubscribe", "revoke"):
            node = replace(node, data={"id": node})
        required = {key for key, must in STEPS[step].items() if must}
        if self.names.denying and step in ("subscribe", "publish"):
            required.remove("id")
        return node.fields(STEPS[step], [key for key in STEPS[step] if key in required])

    def _given(self, step: str, fields: YamlFields, *without: str) -> dict[str, Any]:
        """What is given of a step, each key as its reader has it, but for these."""
        known = (key for key in STEPS[step] if key in fields and key not in without)
        return {key: self._read(READERS.get(f"{step}.{key}", READERS[key]), fields[key]) for key in known}

    def _read(self, reader: str | Reader[Any], node: YamlNode) -> Any:
        return getattr(self.names, reader)(node) if isinstance(reader, str) else reader(node)

    # -- subscriptions, events and policy ---------------------------------------------------------------------

    def step_subscribe(self, node: YamlNode) -> story.SubscribeStep:
        """Subscriptions that begin together."""
        if not node.several():
            node.refuse("no subscription to begin")
        made = tuple(map(self._subscription, node.several()))
        callers, ids = tuple(dict.fromkeys(one.principal for one in made)), tuple(one.id for one in made)
        return story.SubscribeStep(
            place=node.place,
            words=f"subscribe {', '.join(f'`{id}`' for id in ids)}",
            callers=callers,
            ids=ids,
            author=callers[0] if len(callers) == 1 else story.ADMINISTRATOR,
            subscriptions=made,
        )

    def _subscription(self, node: YamlNode) -> story.SubscriptionText:
        given = self._given("subscribe", self._fields("subscribe", node))
        self.names.subscriptions.add(given.setdefault("id", DENIED))
        principal, counted = given.pop("as"), given.pop("with", None)
        start = self._begins(node, principal, given.pop("from", {}))
        return story.SubscriptionText(node.place, principal=principal, counted=counted, **given, **start)

    def _begins(self, node: YamlNode, principal: str, start: dict[str, Any]) -> dict[str, Any]:
        """Where a subscription begins, with the time of its reservation, if it begins at one."""
        if "reserved" not in start:
            return start
        made, until = self.names.reserved.get((principal, start["reserved"]), (EPOCH, EPOCH))
        if self.names.clock >= until:
            node.refuse(f"`{principal}` has no reservation `{brief(start['reserved'])}`", "reserve it first")
        return {**start, "since_time": made}

    def step_reserve(self, node: YamlNode) -> story.ReserveStep:
        """What may be wanted later is kept."""
        given = self._given("reserve", self._fields("reserve", node))
        id, who = given.pop("id"), given.pop("as")
        if ("type" in given) == ("expression" in given) or ("where" in given and "expression" in given):
            node.refuse(
                "a type, with a filter or without, or an expression is reserved", "write `type` or `expression`"
            )
        if not self.names.denying:
            made, until = self.names.reserved.get((who, id), (EPOCH, EPOCH))
            made = made if self.names.clock < until else self.names.clock
            self.names.reserved[who, id] = made, self.names.clock + timedelta(seconds=story.RESERVED_SECONDS)
        return story.ReserveStep(
            place=node.place, words=f"reserve `{id}`", callers=(who,), ids=(id,), id=id, principal=who, **given
        )

    def step_unsubscribe(self, node: YamlNode) -> story.UnsubscribeStep:
        """A subscription ends."""
        fields = self._fields("unsubscribe", node)
        id = fields["id"].name()
        self.names.unsubscribed.append(fields["id"])
        return story.UnsubscribeStep(place=node.place, words=f"unsubscribe `{id}`", ids=(id,), id=id)

    def step_publish(self, node: YamlNode) -> story.PublishStep:
        """An event is sent."""
        fields = self._fields("publish", node)
        given = self._given("publish", fields)
        id = given.get("id", DENIED)
        if id in self.names.events and not self.names.denying:
            fields["id"].refuse(f"two events have the id `{brief(id)}`")
        self.names.events[id] = given["type"]
        return story.PublishStep(
            place=node.place,
            words=f"publish `{id}`",
            callers=(given["as"],),
            ids=(id,),
            draft=Draft(id, given["as"], given["type"], given["event"], origin=given.get("origin")),
            stream=given.get("stream", "main"),
            at=given.get("at", self.names.clock),
            requires=given.get("requires"),
            time=given.get("time"),
        )

    def step_detect(self, node: YamlNode) -> story.DetectStep:
        """A detection begins."""
        given = self._given("detect", self._fields("detect", node))
        id, who = given["id"], given["as"]
        if id in self.names.subscriptions:
            node.refuse(f"a subscription has the id `{brief(id)}`", "give the detection another one")
        begins = self._begins(node, who, given.get("from", {"history": True}))
        start = EPOCH if begins.get("history") else self.names.clock
        self.names.detections.add(id)
        if "publishes" in given:
            self.names.published[id] = given["publishes"]
        return story.DetectStep(
            place=node.place,
            words=f"detect `{id}`",
            callers=(who,),
            ids=(id,),
            id=id,
            principal=who,
            author=story.ADMINISTRATOR if "adds" in given else who,
            expression=given["expression"],
            bound=given.get("bind", {}),
            publishes=given.get("publishes"),
            adds=given.get("adds"),
            start=begins.get("since_time", start),
            history=begins.get("history", False),
            since_version=begins.get("since_version", 0),
            reserved=begins.get("reserved"),
        )

    def step_heartbeat(self, node: YamlNode) -> story.HeartbeatStep:
        """A stream promises."""
        given = self._given("heartbeat", self._fields("heartbeat", node))
        return story.HeartbeatStep(
            place=node.place,
            words="heartbeat",
            callers=(given["as"],) if "as" in given else (),
            stream=given.get("stream", "main"),
            horizon=given["horizon"],
            at=self.names.clock,
        )

    def step_change(self, node: YamlNode) -> story.ChangeStep:
        """A change of policy."""
        fields = self._fields("change", node)
        by = fields.maybe("by", self.names.principal, story.ADMINISTRATOR)
        author = story.ADMINISTRATOR if by == OURSELVES else by
        removed = tuple(map(self.names.rule_id, fields.each("remove")))
        facts = (*self._members(fields), *self._attributes(fields), *self._policy_rules(fields), *self._rows(fields))
        rolefiles = tuple(self._rolefile(service, inner) for service, inner in fields.entries("roles"))
        added = read_rules(fields.each("add"), self.names.ids)
        for rule, written in zip(added, fields.each("add"), strict=True):
            self._check_rule(rule, written)
        return story.ChangeStep(
            place=node.place,
            words="change" if author == story.ADMINISTRATOR else f"change by `{author}`",
            callers=(author,),
            author=author,
            remove=removed,
            changes=facts,
            add=tuple(added),
            roles=rolefiles,
        )

    def _members(self, fields: YamlFields) -> Iterator[changes.Change]:
        for group, edits in self._edits(fields, "group"):
            yield from (
                changes.RemoveMember(group, one.text(), self.names.is_value(one, comes=False))
                for one in edits.each("remove")
            )
            yield from (
                changes.AddMember(group, one.text(), self.names.is_value(one, comes=True)) for one in edits.each("add")
            )

    def _rows(self, fields: YamlFields) -> Iterator[changes.Change]:
        for relation, edits in self._edits(fields, "relation"):
            for key, change in (("remove", changes.RemoveRow), ("add", changes.AddRow)):
                rows = (tuple(value.scalar() for value in row.sequence()) for row in edits.each(key))
                yield from (change(relation, row) for row in rows)

    def _attributes(self, fields: YamlFields) -> Iterator[changes.Change]:
        for principal, inner in self._declared(fields, "attributes", "principal", self.names.state.principals):
            values = inner.mapping().items()
            yield from (changes.SetAttribute(principal, name, value.scalar()) for name, value in values)

    def _policy_rules(self, fields: YamlFields) -> Iterator[changes.Change]:
        for principal, inner in self._declared(fields, "policy_rules", "principal", self.names.state.principals):
            yield changes.SetPolicyRule(principal, None if inner.data is None else read_condition(inner))

    def _edits(self, fields: YamlFields, what: str) -> Iterator[tuple[str, YamlFields]]:
        known: Collection[str] = getattr(self.names.state, f"{what}s")
        for name, inner in self._declared(fields, f"{what}s", what, known):
            yield name, inner.fields(("add", "remove"))

    def _declared(
        self, fields: YamlFields, key: str, what: str, known: Collection[str]
    ) -> Iterator[tuple[str, YamlNode]]:
        """The entries of a key, by the names of what is declared."""
        for name, inner in fields.entries(key):
            if name not in known:
                inner.refuse(f"no {what} `{brief(name)}`", f"declare it in `{what}s`")
            yield name, inner

    def _rolefile(self, service: str, node: YamlNode) -> story.RolefileText:
        """Another rolefile."""
        text = None if node.data is None else node.text()
        if not self.names.denying:
            self.names.learn(service, None if text is None else parsed(node, parse_rolefile))
        return story.RolefileText(node.place, service, text)

    def _check_rule(self, rule: story.RuleText, node: YamlNode) -> None:
        fields = node.mapping()
        if "who" in fields:
            self.names.check_principal_or_group(fields["who"])
        self.names.check_role_of(node)
        if self.names.denying or is_pattern(rule.type):
            return
        self.names.type_name(fields["type"])
        known = self.names.types.attributes(rule.type)
        for attribute in rule.attributes or ():
            if attribute not in known:
                fields["attributes"].refuse(
                    f"`{rule.type}` has no attribute `{brief(attribute)}`",
                    f"it has {', '.join(f'`{a}`' for a in known)}",
                )

    # -- types, statements and other domains ------------------------------------------------------------------

    def _other(
        self, node: YamlNode, words: str, *made: changes.Change, by: str = story.ADMINISTRATOR
    ) -> story.CommitStep:
        return story.CommitStep(place=node.place, words=words, callers=(by,), author=by, changes=made)

    def step_type(self, node: YamlNode) -> story.CommitStep:
        """Types that are declared, or grow."""
        made = [read_type(name, inner, STATED) for name, inner in node.mapping().items()]
        if not made:
            node.refuse("no type to declare", "write `type: {name: {owner: ..., attributes: {...}}}`")
        for change in made:
            self.names.check_principal_or_group(node.mapping()[change.type.name].mapping()["owner"])
            # Later steps and expectations may name the type; whether it can be declared shows when it is.
            types, new = self.names.types, change.type
            with suppress(HeadgateError):
                self.names.types = types.grow(new, 0) if new.name in types else types.declare(new)
        return self._other(node, f"type {', '.join(f'`{change.type.name}`' for change in made)}", *made)

    def step_retire(self, node: YamlNode) -> story.CommitStep:
        """A type ends."""
        return self._other(node, f"retire `{node.text()}`", changes.RetireType(self.names.type_name(node)))

    def step_declassify(self, node: YamlNode) -> story.CommitStep:
        """A derived type may be made of a type."""
        return self._classification(node, "declassify")

    def step_reclassify(self, node: YamlNode) -> story.CommitStep:
        """It may be made of it no more."""
        return self._classification(node, "reclassify")

    def _classification(self, node: YamlNode, step: str) -> story.CommitStep:
        by, type_name, derived = self._given(step, self._fields(step, node)).values()
        change = changes.SetDeclassified(type_name, derived, step == "declassify")
        return self._other(node, f"{step} `{type_name}` for `{derived}`", change, by=by)

    def step_advertise(self, node: YamlNode) -> story.CommitStep:
        """A principal says what it will publish."""
        return self._advertisement(node, "advertise", changes.Advertise)

    def step_unadvertise(self, node: YamlNode) -> story.CommitStep:
        """A principal will publish it no more."""
        return self._advertisement(node, "unadvertise", changes.Unadvertise)

    def _advertisement(
        self, node: YamlNode, step: str, change: type[changes.Advertise | changes.Unadvertise]
    ) -> story.CommitStep:
        principal, type_name = self._given(step, self._fields(step, node)).values()
        return self._other(node, f"{step} `{type_name}`", change(principal, type_name), by=principal)

    def step_connect(self, node: YamlNode) -> story.ConnectStep:
        """A principal connects, and shows what it has; whether it may shows once that is taken up."""
        given = self._given("connect", self._fields("connect", node))
        principal, present = given["as"], given.get("present", ())
        made = self.names.shows(principal, present)
        ids = tuple(dict.fromkeys(one.text() for one in present))
        self.names.shown.update(ids)
        return story.ConnectStep(
            place=node.place,
            words=f"connect `{principal}`",
            ids=ids,
            changes=made,
            principal=principal,
            shown=ids,
            forged=tuple(id for id in ids if id in self.names.forged),
        )

    def step_hear(self, node: YamlNode) -> story.CommitStep:
        """An issuer gives a sign of life."""
        return self._other(node, f"hear `{node.text()}`", self.names.heard(node))

    def step_silent(self, node: YamlNode) -> story.CommitStep:
        """A service of another domain is not heard any more."""
        return self._other(node, f"silent `{node.text()}`", *self.names.silence(self.names.peer(node)))

    def step_heard(self, node: YamlNode) -> story.CommitStep:
        """It is heard again."""
        return self._other(node, f"heard `{node.text()}`", *self.names.speak(self.names.peer(node)))

    # -- roles ------------------------------------------------------------------------------------------------

    def step_grant(self, node: YamlNode) -> story.RoleStep:
        """A service gives a role for its own reasons; one of another domain is known here by its word."""
        fields = self._fields("grant", node)
        id, given = self.names.declared(fields), self._given("grant", fields, "id", "args")
        args = self.names.arguments(fields) or ()
        if None in args:
            fields["args"].refuse("an argument is left open", "give every argument a value")
        self.names.sized(given["service"], given["role"], len(args))
        request: changes.RoleRequest
        if given["service"] in self.names.state.roles.peers:
            for key in fields.keys() & {"until", "appointment"}:
                fields[key].refuse(f"`{key}` is for services of this domain", "leave it out, and revoke the role")
            given |= {"peer": given.pop("service"), "holder": given.pop("to"), "at": self.names.clock}
            request = self.names.mirror(changes.MirrorRole(id=id, args=args, remote=0, state=True, **given))
        else:
            request = changes.GrantRole(id=id, args=args, **given)
        return story.RoleStep(place=node.place, words=f"grant `{id}`", ids=(id,), request=request)

    def step_enter(self, node: YamlNode) -> story.RoleStep:
        """A client asks to enter a role."""
        return self._asks("enter", node, changes.EnterRole)

    def step_elect(self, node: YamlNode) -> story.RoleStep:
        """A client elects whoever has the required roles."""
        return self._asks("elect", node, changes.ElectRole)

    def _asks(self, step: str, node: YamlNode, kind: type[changes.EnterRole | changes.ElectRole]) -> story.RoleStep:
        fields = self._fields(step, node)
        id, asked = self.names.declared(fields), self._asked(step, fields)
        if "to" in asked:
            asked["required"] = asked.pop("to")
        made, who = kind(id=id, **asked), asked["principal"]
        return story.RoleStep(place=node.place, words=f"{step} `{id}`", callers=(who,), ids=(id,), request=made)

    def _asked(self, step: str, fields: YamlFields, who: str = "as") -> dict[str, Any]:
        """What is asked of a service by a principal, about a role that a rolefile of the file defines."""
        given = self._given(step, fields, "id", "args")
        self.names.check_role(fields)
        named = {"principal": given.pop(who), "using": given.pop("with", None)}
        return {"args": self.names.arguments(fields), "at": self.names.clock, **named, **given}

    def step_pass(self, node: YamlNode) -> story.RoleStep:
        """The right to revoke an election goes to another in the elector's role, too."""
        fields = self._fields("pass", node)
        id, who, to = self._given("pass", fields).values()
        self.names.credential(fields["id"])
        request = changes.PassRevocation(id, who, to)
        return story.RoleStep(place=node.place, words=f"pass `{id}`", callers=(who,), ids=(id,), request=request)

    def step_revoke(self, node: YamlNode) -> story.CommitStep:
        """An issuer takes a statement back; a credential ends; or a role is revoked by who holds the revoker's role."""
        named = node if isinstance(node.data, str) else node.mapping().get("id")
        if named is not None and self.names.knows(named.text()):
            if named is not node:
                node.fields(("id",))
            return self._other(node, f"revoke `{named.text()}`", self.names.revoked(named))
        fields = self._fields("revoke", node)
        if not fields:
            node.refuse(
                "nothing is revoked", "name the `id` of a credential or statement, or a `role` with its `service`"
            )
        if "id" not in fields:
            return self._by_role("revoke", node, "by", changes.RevokeRole)
        for key in sorted(fields.keys() - {"id", "by", "with"}):
            fields[key].refuse(f"`id` and `{key}` cannot both be given", "name a credential, or a role")
        given = self._given("revoke", fields)  # being in office is looked up, shown or not
        id, by = given["id"], given.get("by")
        self.names.credential(fields["id"])
        if by is None and id in self.names.mirrored:
            return self._other(node, f"revoke `{id}`", *self.names.unmirror(id))
        callers, request = () if by is None else (by,), changes.EndCredential(id, by)
        return story.RoleStep(place=node.place, words=f"revoke `{id}`", callers=callers, ids=(id,), request=request)

    def step_reinstate(self, node: YamlNode) -> story.RoleStep:
        """A role that was revoked by role may be entered again."""
        return self._by_role("reinstate", node, "as", changes.ReinstateRole)

    def _by_role(
        self, step: str, node: YamlNode, who: str, kind: type[changes.RevokeRole | changes.ReinstateRole]
    ) -> story.RoleStep:
        asked = self._asked(step, node.fields(STEPS[step], ("service", "role", who)), who)
        asked["args"] = tuple(None if arg == OPEN else arg for arg in asked["args"] or ())
        made = kind(**asked)
        role = render_membership(made.service, made.instance, made.role, made.args)
        return story.RoleStep(place=node.place, words=f"{step} `{role}`", callers=(made.principal,), request=made)

    # -- the clock, crashes and claims ------------------------------------------------------------------------

    def step_advance(self, node: YamlNode) -> story.AdvanceStep:
        """The clock moves on; a step inside `denied` cannot move it."""
        since = self.names.clock
        passed = () if self.names.denying else self.names.advance(node)
        return story.AdvanceStep(node.place, passed, since, self.names.clock)

    def step_crash(self, node: YamlNode) -> story.CrashStep:
        """The pipeline fails."""
        if node.data != "pipeline":
            node.refuse(f"`{brief(node.plain())}` cannot crash", "write `crash: pipeline`")
        return story.CrashStep(node.place)

    def step_assert(self, node: YamlNode) -> story.DeniedStep | story.ClaimStep:
        """What must hold, or must be denied."""
        fields = self._fields("assert", node)
        if not fields:
            node.refuse("nothing is claimed", "write `holds`, `lacks`, `state` or `denied`")
        denied = self._denied(node, fields["denied"]) if "denied" in fields else None
        if denied is not None and len(fields) == 1:
            return denied
        claims = tuple(
            self._state(pair, *pair.sequence()) if key == "state" else self._holding(key, *pair.sequence())
            for key in ("holds", "lacks", "state")
            for pair in (_pairs(fields[key]) if key in fields else ())
        )
        return story.ClaimStep(node.place, claims, self.names.clock, denied)

    def _denied(self, node: YamlNode, inner: YamlNode) -> story.DeniedStep:
        fields = inner.fields(("step", "reason"), required=("step", "reason"))
        if self.names.denying:
            inner.refuse("an `assert` cannot be denied", "name a step that can be refused")
        so_far, self.names = self.names, self.names.denied()
        step = self.step(fields["step"])
        self.names = so_far
        if not isinstance(step, story.TakenStep):
            fields["step"].refuse(
                "a crash, an `advance` or another `assert` cannot be denied", "name a step that can be refused"
            )
        return story.DeniedStep(node.place, step, read_reason(fields["reason"]))

    def _holding(self, key: str, who: YamlNode, role: YamlNode) -> story.HoldingClaim:
        ref = parsed(role, parse_role)
        if ref.service is None:
            role.refuse(f"`{brief(role.data)}` has no service", "write it like `Login.LoggedOn('jmb', h)`")
        if any(isinstance(term, Meta) for term in (*ref.args, ref.instance)):
            role.refuse("`@names` have no meaning here", "write a constant in quotes, or a variable")
        self.names.meant.append((role, ref))
        try:
            meant = with_times(self.names.meaning(ref), self.names.rolefiles.get(ref.service))
        except HeadgateError as error:
            role.refuse(error.message, error.remedy)
        return story.HoldingClaim(role.place, self.names.principal(who), meant, key == "holds")

    def _state(self, node: YamlNode, id: YamlNode, state: YamlNode) -> story.StateClaim:
        if state.data not in _STATES or type(state.data) not in (bool, str):
            state.refuse(f"`{brief(state.plain())}` is no state", "it is `true`, `false` or `unknown`")
        wanted = _STATES[state.scalar()]
        if self.names.knows(id.text()):
            return story.StateClaim(node.place, id.text(), wanted, self.names.find(id).key)
        return story.StateClaim(node.place, self.names.credential(id), wanted)


def _pairs(node: YamlNode) -> tuple[YamlNode, ...]:
    """One pair, or a list of them."""
    many = node.sequence()
    pairs = many if many and all(isinstance(one.data, tuple) for one in many) else (node,)
    for one in pairs:
        if len(one.sequence()) != 2:
            one.refuse("it is no pair", 'write `[principal, "Service.Role(args)"]`, or `[id, true]`')
    return pairs
