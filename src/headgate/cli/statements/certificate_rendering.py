"""Certificates and chains as people read them: in words, and drawn from the owner to the holder.

Guarantees: what a link gives beyond what its issuer holds is shown as cut, with what is left of it. On a terminal a
chain is a tree; elsewhere the same lines are plain text with arrows. Keys are called by names, and a legend has them
whole.
Leaves out: whether anything of it counts (`cert`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import eq

from rich.text import Text
from rich.tree import Tree

from headgate.authority.reduction import Reduced, Same, as_reduced, combine, meet
from headgate.cli.shared.common import out
from headgate.cli.shared.rendering import cells, printable, say, show_constant, table
from headgate.cli.statements.statement_files import KeyNames, joined
from headgate.lang.render import render_condition
from headgate.model.authority import ANY, Authority, Certificate, NetworkAuthority, TypeAuthority, Validity
from headgate.model.conditions import TRUE
from headgate.model.rights import Action
from headgate.model.values import Value, render_timestamp

# -- words ----------------------------------------------------------------------------------------------------


def authority_words(authority: Authority, names: KeyNames) -> str:
    """What an authority gives, on one line."""
    match authority:
        case NetworkAuthority(actions, network):
            return f"{_actions(actions)} on {'every network' if network == ANY else f'the network {network}'}"
        case TypeAuthority(actions, pattern, owner, _, _, where):
            whose = "" if owner is None else f" of {names(owner)}"
            to = " to" if Action.SUBSCRIBE in actions else ""  # the last in order
            parts = [f"{_actions(actions)}{to} {'every type' if pattern == ANY else pattern}{whose}"]
            if listed := _attributes(authority):
                parts.append(f"({listed})")
            if where != TRUE:
                parts.append(f"where {render_condition(where)}")
            return " ".join(parts)


def validity_words(validity: Validity) -> str:
    """When something is good, with its ends as they are written."""
    words = []
    if validity.start is not None:
        words.append(f"from {render_timestamp(validity.start)}")
    if validity.until is not None:
        words.append(f"until {render_timestamp(validity.until)}")
    return " ".join(words) or "at any time"


def state_words(validity: Validity, now: datetime) -> str:
    """When something is good, and how that is now."""
    if validity.is_over(now):
        return f"{validity_words(validity)} (has ended)"
    return validity_words(validity) + ("" if validity.holds(now) else " (has not begun)")


def freshness_words(seconds: int | None) -> str:
    """How long an issuer's silence is borne."""
    return "needs no word from its issuer" if seconds is None else f"only if its issuer was heard within {seconds} s"


def _actions(actions: frozenset[Action]) -> str:
    return joined(sorted(action.value for action in actions))


def _attributes(authority: TypeAuthority) -> str:
    """The attributes and the values they must have; nothing if all are meant."""
    if authority.attributes is None and not authority.forced:
        return ""
    named = [
        *(authority.attributes or ()),
        *(name for name in authority.forced if name not in (authority.attributes or ())),
    ]
    found = [f"{name} = {_value(authority.forced[name])}" if name in authority.forced else name for name in named]
    return ", ".join(found) or "no attributes"


def _value(value: object) -> str:
    assert isinstance(value, Value)
    return show_constant(value)


# -- what a link does not get ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One link of a chain: what it gives, what of that is cut, and what there is up to here."""

    certificate: Certificate
    cut: tuple[str, ...]
    reduced: Reduced


def steps(chain: Sequence[Certificate], names: KeyNames, same: Same = eq) -> list[ChainStep]:
    """A chain, link by link, from the first issuer on; as far as something is left."""
    chain_steps: list[ChainStep] = []
    so_far: Reduced | None = None
    for certificate in chain:
        link = as_reduced(certificate)
        after = link if so_far is None else combine(so_far, link, same)
        if after is None:
            break
        cut = () if so_far is None else tuple(_cuts(so_far, link, after, names, same))
        chain_steps.append(ChainStep(certificate, cut, after))
        so_far = after
    return chain_steps


def _cuts(before: Reduced, link: Reduced, after: Reduced, names: KeyNames, same: Same) -> Iterator[str]:
    """What a link gives and its issuer does not have."""
    giver = names(link.issuer)
    for wanted in link.authority:
        left = [found for one in before.authority if (found := meet(one, wanted, same)) is not None]
        if not left:
            yield f"{authority_words(wanted, names)}: {giver} does not have it"
            continue
        if lost := wanted.actions - frozenset[Action]().union(*(one.actions for one in left)):
            yield f"{_actions(lost)}: {giver} may not"
        if isinstance(wanted, TypeAuthority):
            yield from _type_cuts(wanted, [one for one in left if isinstance(one, TypeAuthority)], giver)
    if after.validity.until != link.validity.until and after.validity.until is not None:
        end = "without end" if link.validity.until is None else f"until {render_timestamp(link.validity.until)}"
        yield f"{end}: what {giver} has ends {render_timestamp(after.validity.until)}"
    if after.validity.start != link.validity.start and after.validity.start is not None:
        yield f"what {giver} has begins {render_timestamp(after.validity.start)}"


def _type_cuts(wanted: TypeAuthority, left: Sequence[TypeAuthority], giver: str) -> Iterator[str]:
    if all(one.type != wanted.type for one in left):
        yield f"{wanted.type} beyond {joined(dict.fromkeys(one.type for one in left))}"
    if all(one.attributes is not None for one in left):
        kept = [name for one in left for name in one.attributes or ()]
        if wanted.attributes is None:
            yield f"attributes other than {', '.join(dict.fromkeys(kept)) or 'none'}"
        elif lost := [name for name in wanted.attributes if name not in kept]:
            yield f"the attribute{'s' if len(lost) > 1 else ''} {joined(lost)}: {giver} does not have it"
    for name in dict.fromkeys(name for one in left for name in one.forced if name not in wanted.forced):
        values = dict.fromkeys(_value(one.forced[name]) for one in left if name in one.forced)
        yield f"every {name} but {joined(values)}"
    if all(one.where != wanted.where for one in left):
        yield f"whatever is not so: {joined(dict.fromkeys(render_condition(one.where) for one in left))}"


# -- drawings -------------------------------------------------------------------------------------------------


def draw_chain(chain: Sequence[Certificate], names: KeyNames, same: Same = eq) -> None:
    """A chain from the owner to the holder, with what each link gives and what of it is cut."""
    root = Text(names(chain[0].issuer), "bold")
    lines = [_link(step, names) for step in steps(chain, names, same)]
    if not out.is_terminal:
        out.print(root, highlight=False)
        for depth, line in enumerate(lines, 1):
            first, *rest = line.plain.split("\n")
            print("  " * depth + f"-> {first}")
            for more in rest:
                print("  " * depth + f"   {more}")
        return
    tree = at = Tree(root)
    for line in lines:
        at = at.add(line)
    out.print(tree, highlight=False)


def _link(step: ChainStep, names: KeyNames) -> Text:
    certificate = step.certificate
    text = Text.assemble((names(certificate.subject), "bold"))
    for authority in certificate.authority:
        text.append(f"\nmay {printable(authority_words(authority, names))}")
    text.append(
        f"\n{'may pass it on, ' if certificate.delegate else ''}{validity_words(certificate.validity)}", style="dim"
    )
    if certificate.freshness is not None:
        text.append(f", {freshness_words(certificate.freshness)}", style="dim")
    text.append(f"\ncertificate {printable(certificate.id)}", style="dim")
    for cut in step.cut:
        text.append("\ncut ", style="bold yellow")
        text.append(printable(cut), style="yellow")
    return text


def say_reduced(reduced: Reduced, names: KeyNames) -> None:
    """The one five-tuple that a chain comes to."""
    for one in reduced.authority:
        say((names(reduced.subject), "bold green"), f" may {authority_words(one, names)}")
    passing = "may pass it on" if reduced.delegate else "may not pass it on"
    say(f"  {passing}, {validity_words(reduced.validity)}")
    for issuer, seconds in reduced.freshness:
        say(f"  only if {names(issuer)} was heard within {seconds} s")


def say_legend(names: KeyNames) -> None:
    """The keys behind the names, whole."""
    if not names.used:
        return
    say()
    shown = table("name", "key")
    for did, name in names.used.items():
        shown.add_row(*cells(name, did))
    out.print(shown)
