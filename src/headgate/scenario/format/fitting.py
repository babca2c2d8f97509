"""Do the certificates of a file fit the types that they name?

Guarantees: a certificate that names one type exactly is held to what a rule on it is held to: the type is declared in
the file, at first or by a step, and its attributes, forced values and condition fit it. What does not is refused with
its file, line and key.
Leaves out: patterns, which take in whatever fits; and certificates that come from elsewhere, which a gateway cuts down
to what they can give instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.decide.check import Scope, check
from headgate.model.authority import Certificate, TypeAuthority
from headgate.model.errors import TypeMismatch
from headgate.model.state import State
from headgate.model.types import Catalog, is_pattern
from headgate.model.values import brief, conform
from headgate.scenario.format.declared import placed
from headgate.scenario.format.yamlfile import YamlNode


def check_fit(node: YamlNode, certificates: Iterable[Certificate], types: Catalog, state: State) -> None:
    """Refuse certificates that do not fit; `types` are all that the file ever declares."""
    for written, certificate in zip(node.sequence(), certificates, strict=True):
        fields = written.mapping()
        many = fields["authority"].sequence() if "authority" in fields else (written,)
        for inner, authority in zip(many, certificate.authority, strict=True):
            if isinstance(authority, TypeAuthority) and not is_pattern(authority.type):
                _check(inner, authority, types, state)


def _check(node: YamlNode, authority: TypeAuthority, types: Catalog, state: State) -> None:
    fields, name = node.mapping(), authority.type
    if name not in types:
        fields["type"].refuse(
            f"no type `{brief(name)}`", "declare it in `types` or by a `type` step, or name a pattern, such as `a.*`"
        )
    kinds = types.attributes(name)
    for attribute in authority.attributes or ():
        if attribute not in kinds:
            fields["attributes"].refuse(
                f"`{name}` has no attribute `{brief(attribute)}`", f"it has {', '.join(f'`{one}`' for one in kinds)}"
            )
    for attribute, raw in authority.forced.items():
        try:
            conform(kinds[attribute], raw)
        except TypeMismatch as error:
            fields["attributes"].mapping()[attribute].refuse(error.message, error.remedy)
    if "where" in fields:
        with placed(fields["where"].place):
            check(authority.where, Scope(state, kinds, f"`{name}`"))
