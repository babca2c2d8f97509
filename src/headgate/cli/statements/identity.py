"""`headgate identity`: what an identity provider says of its members, guests and servers, for a short time.

Guarantees: nothing is issued that would be refused elsewhere, and a guest gets exactly what the mapping gives. A signed
text goes to standard output or a new file. Verifying leaves with 0 if the statement holds, and the rule if one was
asked about; with 1 if not, or if it was revoked; with 2 if it could not be found out. Whether revocation could be
checked is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import eq
from pathlib import Path
from typing import Annotated, Final

import typer

from headgate.cli.shared import options as opt
from headgate.cli.shared.common import group, placed, utc_now
from headgate.cli.shared.options import argument, moment_of, option
from headgate.cli.shared.rendering import print_json, say, show_truth
from headgate.cli.statements import offline_verify as offline
from headgate.cli.statements import statement_files as given
from headgate.cli.statements.statement_files import KeyNames, Lifetime, Signing, WrittenStatement, hand_out, read_all
from headgate.cli.statements.statement_rendering import attribute_words, say_legend, show_all, validity_words
from headgate.decide.check import check_requirement, match
from headgate.lang.render import render_condition
from headgate.model.authority import Identity, Provider, RevocationList
from headgate.model.errors import BadStatement, Expired, NotFound, Revoked
from headgate.model.expressions import Condition
from headgate.model.state import ADMINISTRATOR
from headgate.model.values import Value, brief
from headgate.scenario.format.authority import Keys, read_providers
from headgate.scenario.format.yamlfile import YamlFields, load_yaml
from headgate.trust.certificates import REVOCATIONS
from headgate.trust.identities import CROSSING, IDENTITY, cross_domain, guest, issue_identity, verify_server
from headgate.trust.statements import said_kind

_SHORT: Final = "1h"
"""How long statements are good, where nothing is said."""
_REFUSALS: Final = (BadStatement, Expired, Revoked)
_WORDS: Final = {
    "wrong-issuer": "whoever vouches for its provider is not the one that you believe",
    "guest-of-guest": "it is about a guest of the provider that is vouched for, and not a member",
}
"""Why a statement through another provider does not hold, by reason."""

AttributesOption = Annotated[str, option("--attributes NAME=VALUE", "What is attested, with commas between.")]
RuleOption = Annotated[
    str | None, option("--policy-rule RULE", 'The widest that its events may go, such as `$nation = "NO"`.')
]
ShortOption = Annotated[str, option("--for TIME", "How long it is good, a day at most.")]
ProvidersOption = Annotated[
    Path, option("--providers FILE", "A YAML file with `providers`: whom you trust, and how you map attributes.")
]
AnchorOption = Annotated[str | None, option("--provider WHO", "The provider to believe.", unset="nobody")]
AskedRule = Annotated[str | None, option("--rule RULE", "Ask whether this rule holds of the attributes too.")]


# -- issuing --------------------------------------------------------------------------------------------------


def issue(
    who: opt.Signer,
    to: opt.Subject,
    attributes: AttributesOption = "",
    policy_rule: RuleOption = None,
    for_: ShortOption = _SHORT,
    audience: opt.Audience = None,
    *,
    signing: Signing,
) -> None:
    """Attest a member's key, attributes and policy rule.

    For example:

    `headgate identity issue --as norway --to ola --attributes "nation=NO,clearance=secret" --for 8h -o ola.jwt`

    `headgate identity issue --as norway --to ola --attributes nation=NO --policy-rule '$nation = "NO"'`
    """
    now = utc_now()
    rule = _rule(policy_rule, "--policy-rule")
    subject, attested = signing.names.did(to, "--to"), _attributes(attributes)
    validity, by = Lifetime(for_=for_).validity(now), signing.key(who)
    text = issue_identity(
        by, subject=subject, attributes=attested, validity=validity, now=now, policy_rule=rule, audience=audience or ()
    )
    _hand_out(text, signing)


def guest_(
    file: Annotated[Path, argument("FILE", "The statement from home.")],
    who: opt.Signer,
    providers: ProvidersOption,
    policy_rule: RuleOption = None,
    heard_by: Annotated[str | None, option("--heard-by DOMAIN", "The name under which it is addressed to you.")] = None,
    audience: opt.Audience = None,
    *,
    signing: Signing,
) -> None:
    """Take a member of another community in as a guest, with the attributes that your mapping gives it.

    The file with `providers` is one that a policy directory has too:
    `providers: [{name: norway, as: DID, mapping: {nation: nation, gradering: {to: clearance,
    values: [[HEMMELIG, secret]]}}}]`. What the mapping does not name is left out.

    For example:

    `headgate identity guest ola.jwt --as italy --providers trust.yaml -o guest.jwt`
    """
    rule = _rule(policy_rule, "--policy-rule")
    home = given.read_one(file)
    try:
        provider = _provider(providers, IDENTITY.read(home.text).value.issuer, signing.names)
        text = guest(
            home.text,
            home=provider,
            host=signing.key(who),
            now=utc_now(),
            policy_rule=rule,
            heard_by=heard_by,
            audience=audience or (),
        )
    except BadStatement as error:
        raise error.at(home.place) from None
    _hand_out(text, signing)


def vouch(
    who: opt.Signer, to: opt.Subject, for_: ShortOption = _SHORT, audience: opt.Audience = None, *, signing: Signing
) -> None:
    """Tell your members that another key is an identity provider, so that they can believe its servers.

    For example:

    `headgate identity vouch --as norway --to italy --for 1h -o italy-by-norway.jwt`
    """
    names, now = signing.names, utc_now()
    other = names.did(to, "--to")
    validity = Lifetime(for_=for_).validity(now)
    by = signing.key(who)
    text = cross_domain(by, other=other, validity=validity, now=now, audience=audience or ())
    said = f"{names(by.public.did)} says that {names(other)} is an identity provider, {validity_words(validity)}"
    hand_out(text, signing.out, said)


def _attributes(text: str) -> dict[str, Value]:
    attributes: dict[str, Value] = {}
    for pair in given.pieces(text):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise typer.BadParameter(f"--attributes: `{pair}` is not NAME=VALUE")
        if name in attributes:
            raise typer.BadParameter(f"--attributes names `{name}` twice")
        attributes[name.removeprefix("$")] = given.value_of(value)
    return attributes


def _rule(text: str | None, option: str) -> Condition | None:
    if text is None:
        return None
    condition = given.condition_of(text, option)
    with placed(option):
        check_requirement(condition)
    return condition


def _provider(file: Path, issuer: str, names: KeyNames) -> Provider:
    top = YamlFields(load_yaml(file).mapping())
    if "providers" not in top:
        raise NotFound(f"`{file}` has no `providers`", remedy="list whom you trust under `providers:`")
    for one in read_providers(top, Keys(top, ADMINISTRATOR)):
        if one.key == issuer:
            return one
    raise NotFound(
        f"`{file}` has no provider with the key of {names(issuer)}",
        remedy=f"add one with `as: '{issuer}'`, if you trust it",
    )


def _hand_out(text: str, signing: Signing) -> None:
    hand_out(text, signing.out, *_said(text, signing.names))


def _said(text: str, names: KeyNames) -> list[str]:
    identity = IDENTITY.read(text).value
    attested = attribute_words(identity.attributes) or "nothing"
    lines = [f"{names(identity.issuer)} says of {names(identity.subject)}: {attested}"]
    if identity.policy_rule is not None:
        lines.append(f"policy rule {render_condition(identity.policy_rule)}")
    return [*lines, f"statement {identity.id}, {validity_words(identity.validity)}"]


# -- looking --------------------------------------------------------------------------------------------------


def show(files: opt.Files, keys: opt.Keys = None, json: opt.Json = False) -> None:
    """Say in words what identity statements say.

    For example:

    `headgate identity show ola.jwt guest.jwt`
    """
    show_all(read_all(files), KeyNames(keys), utc_now(), json=json)


def verify(
    files: opt.Files,
    provider: AnchorOption = None,
    rule: AskedRule = None,
    audience: opt.Heard = None,
    at: opt.At = None,
    keys: opt.Keys = None,
    json: opt.Json = False,
) -> None:
    """Verify an identity statement, of a provider that you believe or that one of yours vouches for.

    Give the statement, and the cross-domain statement of your own provider if the other one is foreign. Revocation
    lists among the files and beside them count; of whom there is none is said. Leaves with 0 if it holds, and the rule
    with it, and with 1 if not. If nobody is named to believe, it does not hold.

    For example:

    `headgate identity verify ola.jwt --provider norway --rule '$nation = "NO"'`

    `headgate identity verify server.jwt italy-by-norway.jwt --provider norway`
    """
    names = KeyNames(keys)
    now = utc_now() if at is None else moment_of(at, "--at")
    asked = _rule(rule, "--rule")
    anchor = None if provider is None else names.did(provider, "--provider")
    written = read_all(files)
    try:
        statement, crossing, among = _sorted(written, now)
        lists = (*among, *offline.lists_beside(files, now))
        identity = _verified(statement.text, crossing, anchor, audience, now, names)
        checked = _not_revoked(identity, crossing, anchor, lists)
    except _REFUSALS as error:
        offline.refuse(
            error, names, {"holds": False, "identity": None, "rule": None, "revocation": ()} if json else None
        )
    truth = None if asked is None else match(asked, identity.attributes)
    holds = anchor is not None and (asked is None or truth is True)
    if json:
        verdict = {"holds": holds, "identity": identity, "rule": truth, "revocation": checked}
        why: dict[str, object] = {"code": None, "why": None, "remedy": None}
        if anchor is None:
            why |= {"why": offline.NOBODY_NAMED, "remedy": "name the provider with `--provider`"}
        print_json(verdict | why)
    else:
        for line in _said(statement.text, names):
            say(line)
        if anchor is None:
            say((f"{offline.NOBODY_NAMED}: ", "bold red"), "the signature is good, and that is all (`--provider`)")
        if asked is not None:
            say("the rule is ", (show_truth(truth), "bold green" if truth is True else "bold red"))
        offline.say_checked(checked, names)
        say_legend(names)
    if not holds:
        raise typer.Exit(1)


def _verified(
    text: str, crossing: str | None, anchor: str | None, audience: str | None, now: datetime, names: KeyNames
) -> Identity:
    """What a statement says, if the provider that is believed has signed it or vouches for whoever has."""
    identity = IDENTITY.verify(text, audience=audience, now=now)
    if anchor in (None, identity.issuer):
        return identity
    assert anchor is not None
    if crossing is None:
        raise BadStatement(
            f"its provider is {names(identity.issuer)}, not {names(anchor)}",
            reason="wrong-issuer",
            remedy=f"give the statement by which {names(anchor)} vouches for it (`headgate identity vouch`)",
        )
    try:
        return verify_server(text, crossing, anchor=anchor, audience=audience, now=now)
    except BadStatement as error:
        error.message = _WORDS.get(error.reason, error.message)  # it need not be a server's
        raise


def _not_revoked(
    identity: Identity, crossing: str | None, anchor: str | None, lists: Sequence[RevocationList]
) -> tuple[offline.ListCheck, ...]:
    """By which lists a statement, and the one that vouches for its provider, are not revoked; refused if they are."""
    rests = [(identity.issuer, identity.id)]
    if crossing is not None and anchor not in (None, identity.issuer):
        vouched = CROSSING.read(crossing).value
        rests.append((vouched.issuer, vouched.id))
    for issuer, id in rests:
        if any(one.issuer == issuer and id in one.revoked for one in lists):
            raise Revoked(f"the statement `{brief(id)}` was revoked", remedy="ask its provider for a new one")
    return offline.check_lists((issuer for issuer, _ in rests), lists, eq)


def _sorted(
    written: Sequence[WrittenStatement], now: datetime
) -> tuple[WrittenStatement, str | None, tuple[RevocationList, ...]]:
    """The one statement, the text of the one that vouches for its provider, if there is one, and verified lists."""
    statements: list[WrittenStatement] = []
    crossings: list[str] = []
    lists: list[RevocationList] = []
    for statement in written:
        with placed(statement.place):
            if said_kind(statement.text) == REVOCATIONS.typ:
                lists.append(REVOCATIONS.verify(statement.text, now=now))
                continue
        try:
            CROSSING.read(statement.text)
            crossings.append(statement.text)
        except BadStatement:
            statements.append(statement)
    if len(statements) != 1 or len(crossings) > 1:
        raise BadStatement(
            f"there are `{len(statements)}` identity statements and `{len(crossings)}` cross-domain statements",
            reason="malformed",
            remedy="give one identity statement, and at most one that vouches for its provider",
        )
    with placed(brief(statements[0].place)):
        IDENTITY.read(statements[0].text)
    return statements[0], crossings[0] if crossings else None, tuple(lists)


app = group(issue, guest_, vouch, show, verify)
