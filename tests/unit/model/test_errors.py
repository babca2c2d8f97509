"""Codes are part of the interface: they follow from the names of classes, which must not change them."""

from headgate.model import errors

CODES = """
unknown-type type-mismatch publish-denied govern-denied subscribe-denied bad-expression bad-definition unknown-name
version-conflict stale-version fenced stream-held too-new too-old damaged storage-full storage-busy not-in-force
bad-scenario bad-environment engine-failed not-found bad-key not-authenticated broker-not-trusted too-busy
bad-position bad-config connect-denied bad-request too-large too-many below-horizon ahead-of-clock limit-reached
detection-failed feeds-itself already-exists unsupported-media-type lookup-too-large already-running chain-invalid
expired revoked bad-statement stale-list policy-rule role-denied
"""


def test_every_code_is_what_it_always_was() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind is not errors.HeadgateError]
    assert [kind.code for kind in kinds if issubclass(kind, errors.HeadgateError)] == CODES.split()


def test_a_class_below_another_keeps_its_code() -> None:
    class Nearly(errors.NotFound):
        """Something like it."""

    assert Nearly.code == "not-found"
