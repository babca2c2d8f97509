"""Does anybody want a type of event, and may receive it? (Hermes 8, Elvin's quenching)

Guarantees: "nobody" is said only where it is proven that no event of the type, or of a subtype, would be delivered to
any subscription in force. Filters play no part: a publisher learns about types, never about what subscribers ask for.
"""

from __future__ import annotations

from headgate.analysis.restrictions import Reason, restricted_type
from headgate.model.rights import Subscription
from headgate.model.state import State


def wanted(state: State, type_name: str) -> bool:
    """Might somebody receive an event of this type or a subtype?"""
    by_role = bool(state.roles.policy.entries) or any(rule.role is not None for rule in state.rules)
    for name in state.types.subtypes(type_name):
        line = frozenset(state.types.lineage(name))
        asked: set[frozenset[str]] = set()
        for subscription in state.subscriptions.values():
            if subscription.type not in line:
                continue
            subjects = state.principals.get(subscription.principal, {})
            who = state.groups_of(subscription.principal) | {subscription.principal}
            alike = frozenset(rule.id for rule in state.rules if rule.who in who)
            plain = not subjects and not (by_role and subscription.principal in state.roles.held)
            if plain and alike in asked:  # someone with the same rules was asked about already
                continue
            if plain:
                asked.add(alike)
            if _may_receive(state, subscription, name):
                return True
    return False


def _may_receive(state: State, subscription: Subscription, type_name: str) -> bool:
    anything = Subscription("quench", subscription.principal, type_name, counted=subscription.counted)
    reason = restricted_type(state, anything, type_name).reason
    return reason not in (Reason.NO_GRANT, Reason.CREDENTIALS, Reason.NEVER_TRUE, Reason.FORBIDDEN)
