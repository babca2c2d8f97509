"""The gateway's own chain: made where the domain's key is, shown while it is good, and verified by the client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.cli.node.init import make_domain
from headgate.model.authority import Certificate, Validity
from headgate.model.errors import BadConfig, BrokerNotTrusted, TooLarge
from headgate.node.config import Files
from headgate.node.statement_register import (
    MAX_OWN,
    OWN,
    StatementRegister,
    is_vouched,
    own_statements,
    shown,
    signs_of_life,
    vouch,
)
from headgate.trust.certificates import CERTIFICATE, REVOCATIONS, consent_to, issue_succession
from headgate.trust.identities import cross_domain, verify_server
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import MAX_SHOWN, check_broker, open_presented
from headgate.trust.statements import said_kind
from strategies.presenting import certificate, identity, network, now, revocations, types


@pytest.fixture
def files(tmp_path: Path) -> Files:
    make_domain(tmp_path / "d", "example", (), datetime.now(UTC))
    return Files(tmp_path / "d")


def test_a_new_domain_vouches_for_its_gateways_once(files: Files) -> None:
    domain, broker = PrivateKey.load(files.admin_key), PrivateKey.load(files.broker_key)
    (text,) = own_statements(files.statements)
    said = CERTIFICATE.verify(text, audience=None)
    assert (said.issuer, said.subject, said.delegate) == (domain.public.did, broker.public.did, True)
    assert not vouch(files, now())
    (files.statements / OWN).unlink()
    assert vouch(files, now())
    (files.statements / OWN).unlink()
    files.admin_key.unlink()
    assert not vouch(files, now()), "the domain's key is somewhere safer"
    assert own_statements(files.statements) == ()


def test_statements_are_lines_of_files_and_bounded(files: Files) -> None:
    extra = [certificate(PrivateKey.generate(), PrivateKey.generate()) for _ in range(3)]
    (files.statements / "more.jwt").write_text("\n".join([extra[0], "", extra[1], extra[1]]))
    (files.statements / "other.txt").write_text(extra[2])
    assert own_statements(files.statements)[1:] == (extra[0], extra[1])
    (files.statements / "many.jwt").write_text("\n".join(f"s{n}" for n in range(MAX_OWN)))
    with pytest.raises(BadConfig, match="MAX_OWN"):
        own_statements(files.statements)
    (files.statements / "many.jwt").write_text("x" * 70_000)
    with pytest.raises(BadConfig, match="MAX_OWN_BYTES"):
        own_statements(files.statements)
    (files.statements / "many.jwt").write_bytes(b"\xff")
    with pytest.raises(BadConfig, match="not a signed statement"):
        own_statements(files.statements)


def test_what_is_not_good_any_more_is_not_shown(files: Files) -> None:
    provider, broker = PrivateKey.generate(), PrivateKey.load(files.broker_key)
    good, brief = own_statements(files.statements)[0], identity(provider, broker, seconds=60)
    elsewhere = certificate(provider, broker, audience=["elsewhere"])
    assert shown([good, brief, "nonsense", elsewhere], audience="example", now=now()) == (good, brief)
    assert shown([good, brief], audience="example", now=now() + timedelta(minutes=2)) == (good,)


def test_the_signs_of_life_that_a_chain_needs_are_shown_with_it(files: Files) -> None:
    root, broker = PrivateKey.generate(), PrivateKey.load(files.broker_key)
    chain = certificate(root, broker, freshness=60, delegate=True)
    register = StatementRegister(files.data / "authority.db")
    assert signs_of_life([chain], register, "example", now()) == ()
    text = revocations(root, 1)
    register.hear(REVOCATIONS.verify(text), text, now())
    assert signs_of_life([chain], register, "example", now()) == (text,)
    assert signs_of_life([certificate(root, broker)], register, "example", now()) == ()
    check_broker([chain, text], broker=broker.public.did, coordinator=root.public.did, now=now())
    register.close()


def test_a_client_verifies_the_gateways_chain_as_the_gateway_verifies_the_clients() -> None:
    root, domain, broker, other = (PrivateKey.generate() for _ in range(4))
    first = certificate(root, domain, network("connect", "install"), delegate=True, id="first")
    second = certificate(domain, broker, network("connect"), delegate=True)

    def trusted(*texts: str, by: PrivateKey = root, whom: PrivateKey = broker) -> bool:
        found = {"broker": whom.public.did, "coordinator": by.public.did, "now": now(), "audience": "example"}
        try:
            check_broker(texts, **found)  # type: ignore[arg-type]
        except BrokerNotTrusted:
            assert not is_vouched(texts, **found)  # type: ignore[arg-type]
            return False
        return True

    assert trusted(first, second)
    assert trusted(second, first)
    assert trusted(whom=root)
    assert not trusted()
    assert not trusted(second)
    assert not trusted(first, second, by=other)
    assert not trusted(first, second, whom=other)
    assert not trusted(first, certificate(domain, broker, types("*", "publish"), delegate=True))
    assert not trusted(first, certificate(domain, broker, network("install"), delegate=True))
    assert not trusted(first, certificate(domain, broker, seconds=5, ago=10, delegate=True))
    assert not trusted(certificate(root, domain, delegate=False), second)
    assert not trusted(first, second, revocations(root, 1, "first"))
    assert not trusted(first, second, "nonsense")
    brief = certificate(domain, broker, freshness=60, delegate=True)
    assert not trusted(first, brief)
    assert not trusted(first, brief, revocations(domain, 1, ago=70))
    assert trusted(first, brief, revocations(domain, 1))
    new = PrivateKey.generate()
    word = issue_succession(root, new=new.public.did, consent=consent_to(root.public, new), now=now())
    assert not trusted(first, second, by=new)
    assert trusted(first, second, word, by=new)


def test_a_member_of_the_network_is_no_gateway_of_it() -> None:
    root, domain, member = (PrivateKey.generate() for _ in range(3))
    joined = certificate(root, domain, network("connect", "install"), delegate=True)
    badge = certificate(domain, member, network("connect"))
    shop = certificate(domain, member, types("*", "publish"), delegate=True)
    for texts in ((certificate(root, member),), (joined, badge), (joined, badge, shop)):
        with pytest.raises(BrokerNotTrusted, match="delegated on"):
            check_broker(texts, broker=member.public.did, coordinator=root.public.did, now=now())
    made = certificate(domain, member, network("connect"), delegate=True)
    check_broker((joined, made), broker=member.public.did, coordinator=root.public.did, now=now())


def test_a_bag_is_sorted_and_holds_crossings_too() -> None:
    ours, theirs, server = (PrivateKey.generate() for _ in range(3))
    validity = Validity(now(), now() + timedelta(hours=1))
    crossing = cross_domain(ours, other=theirs.public.did, validity=validity, now=now())
    texts = [crossing, identity(theirs, server, role="router"), certificate(ours, server), revocations(ours, 3)]
    bag = open_presented([*texts, texts[2]], audience=None, now=now())
    assert [len(each) for each in (bag.certificates, bag.identities, bag.lists, bag.crossings)] == [1, 1, 1, 1]
    assert isinstance(bag.certificates[0], Certificate)
    found = verify_server(texts[1], crossing, anchor=ours.public.did, audience=None, now=now())
    assert dict(found.attributes) == {"role": "router"}
    assert said_kind(crossing) == "hg-identity+jwt"
    with pytest.raises(TooLarge, match="MAX_SHOWN"):
        open_presented(["x"] * (MAX_SHOWN + 1), audience=None, now=now())
    with pytest.raises(TooLarge, match="MAX_SHOWN_CHARS"):
        open_presented(["x" * 900_001], audience=None, now=now())
