"""The client across organisations: shown chains, renewal, guests, and gateways that are not what they should be.

Real gateways as processes, no Spark.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from harness.alone import Alone, alone, rule
from headgate.cli.main import app
from headgate.client import Client, Issued, aio, connect
from headgate.lang import parse_condition
from headgate.model.authority import (
    AttributeMap,
    Authority,
    Issuing,
    NetworkAuthority,
    Provider,
    TypeAuthority,
    Validity,
)
from headgate.model.changes import AddIssuing, Change, DeclareType, SetAttribute, SetConnect, SetPolicyRule, SetProvider
from headgate.model.errors import (
    BadStatement,
    BrokerNotTrusted,
    ChainInvalid,
    ConnectDenied,
    Expired,
    NotAuthenticated,
    PolicyRuleDenied,
    PublishDenied,
    Revoked,
)
from headgate.model.rights import Action
from headgate.model.state import ADMINISTRATOR
from headgate.model.types import EventType
from headgate.model.values import Kind
from headgate.trust.certificates import CERTIFICATE, issue_certificate
from headgate.trust.identities import IDENTITY, cross_domain, issue_identity
from headgate.trust.keyring import Keyring
from headgate.trust.keys import PrivateKey

EXAMPLES = Path(__file__).parents[2] / "examples"
SALE = "shop.Sale"
CONNECT = NetworkAuthority(frozenset({Action.CONNECT}))
PUBLISH = TypeAuthority(frozenset({Action.PUBLISH}), SALE)
TEA = {"item": "tea", "amount": 4.5}
SHORT = 4
"""Seconds that short certificates live."""


def policy(made: Alone) -> list[Change]:
    return [
        DeclareType(EventType(SALE, ADMINISTRATOR, {"item": Kind.STRING, "amount": Kind.FLOAT})),
        *made.people("ann", "bob", "camera"),
        SetConnect(False),
        rule("ann-connects", "ann", "connect"),
        rule("bob-connects", "bob", "connect"),
        rule("bob-publishes", "bob", "publish", SALE),
        rule("camera", "camera", "connect publish", SALE),
        rule("ann-reads", "ann", "subscribe", SALE),
        SetAttribute("ann", "branch", "north"),
        SetAttribute("bob", "branch", "south"),
        SetPolicyRule("bob", parse_condition("$branch = 'north'")),
        AddIssuing(Issuing("sales", "ann", (PUBLISH,), SHORT)),
    ]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with alone(tmp_path_factory.mktemp("shops") / "shop", policy) as made:
        made.start()
        yield made


@pytest.fixture
def owner(shop: Alone) -> PrivateKey:
    """The domain's own key, which coordinates the network and owns the type."""
    return PrivateKey.load(shop.files.admin_key)


def signed(
    issuer: PrivateKey,
    subject: PrivateKey,
    *authority: Authority,
    delegate: bool = False,
    seconds: float | None = None,
    start: float = 0,
) -> str:
    now = datetime.now(UTC).replace(microsecond=0)
    begin = now + timedelta(seconds=start)
    validity = Validity() if seconds is None else Validity(begin, begin + timedelta(seconds=seconds))
    return issue_certificate(
        issuer, subject=subject.public.did, authority=authority, now=now, delegate=delegate, validity=validity
    )


def joined(shop: Alone, key: PrivateKey | str, gateway: int = 0, **settings: object) -> Client:
    private = shop.key(key) if isinstance(key, str) else key
    url = shop.gateways[gateway].url
    return connect(url, private, certificate=shop.files.tls_certificate, **settings)  # type: ignore[arg-type]


def eventually(done: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)


# -- chains ---------------------------------------------------------------------------------------------------


def test_a_client_of_another_organisation_connects_by_its_chain_alone(
    shop: Alone, owner: PrivateKey, tmp_path: Path
) -> None:
    other, member = PrivateKey.generate(), PrivateKey.generate()
    chain = [signed(owner, other, CONNECT, PUBLISH, delegate=True), signed(other, member, CONNECT, PUBLISH)]
    with pytest.raises(NotAuthenticated):
        joined(shop, member)
    with pytest.raises(ChainInvalid):
        joined(shop, member, present=chain[1:])
    file = tmp_path / "chain.jwt"
    file.write_text("\n".join(chain))
    for shown in (chain, [file], [chain[0], chain[1]]):
        with joined(shop, member, present=shown) as client:
            assert client.principal == member.public.did
            assert client.publish(SALE, TEA).status == "accepted"
    with joined(shop, member) as client:  # it is known now, until what it showed ends
        assert client.publish(SALE, TEA).status == "accepted"


def test_more_is_shown_during_a_session_and_again_after_it(shop: Alone, owner: PrivateKey) -> None:
    member = PrivateKey.generate()
    with joined(shop, member, present=[signed(owner, member, CONNECT)]) as client:
        with pytest.raises(PublishDenied):
            client.publish(SALE, TEA)
        told = client.present([signed(owner, member, PUBLISH)])
        assert len(told.certificates) == 2
        assert client.publish(SALE, TEA).status == "accepted"
        assert len(client._inner._session.wallet.shown(datetime.now(UTC))) == 2


def test_what_is_no_good_is_refused_with_its_code(shop: Alone, owner: PrivateKey) -> None:
    member, stranger = PrivateKey.generate(), PrivateKey.generate()
    with pytest.raises(BadStatement):
        joined(shop, member, present=["not a statement"])
    with pytest.raises(Expired):
        joined(shop, member, present=[signed(owner, member, CONNECT, seconds=1, start=-10)])
    with pytest.raises(ChainInvalid):
        joined(shop, member, present=[signed(stranger, member, CONNECT)])
    good = signed(owner, member, CONNECT)
    with pytest.raises(BadStatement):
        joined(shop, member, present=[good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB")])
    with joined(shop, member, present=[good]) as client:
        with pytest.raises(ChainInvalid):
            client.present([signed(stranger, member, PUBLISH)])
        assert client.whoami().principal == member.public.did


def test_a_refusal_of_the_gateway_has_its_reason(shop: Alone, owner: PrivateKey) -> None:
    member = PrivateKey.generate()
    now = datetime.now(UTC)
    elsewhere = issue_certificate(
        owner, subject=member.public.did, authority=[CONNECT], now=now, audience=["another-domain"]
    )
    with pytest.raises(BadStatement) as refused:
        joined(shop, member, present=[elsewhere])
    assert refused.value.reason == "wrong-audience"


# -- short certificates ---------------------------------------------------------------------------------------


def test_what_is_shown_once_ends_and_what_is_obtained_is_renewed(shop: Alone) -> None:
    with (
        joined(shop, "ann", obtain=["certificates"]) as renewing,
        joined(shop, "ann") as plain,
    ):
        begin = time.monotonic()
        while time.monotonic() < begin + 2.5 * SHORT:
            assert renewing.publish(SALE, TEA).status == "accepted"
            time.sleep(0.25)
        assert renewing.trouble is None
        assert len(plain.issued()) >= 2
        until = [one.expires for one in plain.issued() if one.kind == "certificate"]
        renewing.close()
        assert max(until) - datetime.now(UTC) < timedelta(seconds=SHORT)

        def ended() -> bool:
            try:
                plain.publish(SALE, TEA)
            except PublishDenied:
                return True
            return False

        eventually(ended)


def test_what_a_home_domain_issues_is_shown_elsewhere_and_renewed(shop: Alone, tmp_path: Path) -> None:
    def foreign(made: Alone) -> list[Change]:
        return [DeclareType(EventType(SALE, ADMINISTRATOR, {"item": Kind.STRING, "amount": Kind.FLOAT}))]

    with alone(tmp_path / "far", foreign) as far:
        far.start()
        broker = PrivateKey.load(shop.files.broker_key)
        root = PrivateKey.load(far.files.admin_key)
        given = [signed(root, broker, CONNECT, PUBLISH, delegate=True)]
        grants = Issuing("far", "ann", (CONNECT, PUBLISH), SHORT)
        shop.commit(AddIssuing(grants))

        async def story(home: aio.Client) -> None:
            async with aio.connect(
                far.gateway.url,
                shop.key("ann"),
                certificate=far.files.tls_certificate,
                present=[*given, home],
                coordinator=root.public.did,
            ) as away:
                begin = time.monotonic()
                while time.monotonic() < begin + 2 * SHORT:
                    assert (await away.publish(SALE, TEA)).status == "accepted"
                    await asyncio.sleep(0.25)

        async def run() -> None:
            url = shop.gateway.url
            async with aio.connect(url, shop.key("ann"), certificate=shop.files.tls_certificate) as home:
                await story(home)

        asyncio.run(run())
        with joined(shop, "ann") as home, joined(far, shop.key("ann"), present=[*given, home]) as away:
            assert away.publish(SALE, TEA).status == "accepted"


def test_revoking_ends_what_the_session_could_do(shop: Alone) -> None:
    with joined(shop, "ann") as ann, joined(shop, ADMINISTRATOR) as administrator:
        texts = ann.obtain()
        ann.present(texts)
        assert ann.publish(SALE, TEA).status == "accepted"
        number = 0
        for one in ann.issued():
            number = administrator.revoke(one.id)
        assert number > 0
        with pytest.raises(PublishDenied):
            ann.publish(SALE, TEA)
        with pytest.raises(Revoked):
            ann.present(texts)


def test_a_session_that_rested_on_a_revoked_chain_is_over(shop: Alone) -> None:
    broker, member = PrivateKey.load(shop.files.broker_key), PrivateKey.generate()
    link = signed(broker, member, CONNECT)
    chain = [*(shop.files.statements / "broker.jwt").read_text().split(), link]
    with joined(shop, member, present=chain) as client, joined(shop, ADMINISTRATOR) as administrator:
        assert client.whoami().principal == member.public.did
        administrator.revoke(CERTIFICATE.read(link).value.id)
        with pytest.raises((Revoked, ConnectDenied)):
            client.whoami()


def test_a_reader_goes_on_when_its_right_to_connect_comes_back(shop: Alone, owner: PrivateKey) -> None:
    broker, member = PrivateKey.load(shop.files.broker_key), PrivateKey.generate()
    root = (shop.files.statements / "broker.jwt").read_text().split()
    reads = TypeAuthority(frozenset({Action.SUBSCRIBE}), SALE)
    lost = signed(broker, member, CONNECT)
    with (
        joined(shop, member, present=[*root, lost, signed(owner, member, reads)]) as client,
        joined(shop, "camera") as camera,
        joined(shop, ADMINISTRATOR) as administrator,
        shop.deciding(),
        client.subscribe("kept", SALE, ack="manual") as reader,
    ):
        camera.publish(SALE, {"item": "first"})
        first = reader.next(20.0)
        assert first is not None
        assert first.data["item"] == "first"
        client._inner._session.wallet.add([signed(owner, member, CONNECT)])  # to be shown the next time
        administrator.revoke(CERTIFICATE.read(lost).value.id)
        camera.publish(SALE, {"item": "second"})
        second = reader.next(20.0)
        assert second is not None
        assert second.data["item"] == "second"


# -- the gateway's side ---------------------------------------------------------------------------------------


def test_a_gateway_must_be_of_the_network_that_the_client_expects(shop: Alone, owner: PrivateKey) -> None:
    with joined(shop, "ann", coordinator=owner.public.did) as client:
        assert client.whoami().principal == "ann"
    with pytest.raises(BrokerNotTrusted, match="not known to be of the network"):
        joined(shop, "ann", coordinator=PrivateKey.generate().public.did)


@pytest.fixture
def attested(tmp_path: Path) -> Iterator[tuple[Alone, PrivateKey, PrivateKey]]:
    """A domain whose gateway shows a stranger's chain, and what a foreign provider attests of it."""
    home, foreign = PrivateKey.generate(), PrivateKey.generate()
    with alone(tmp_path / "domain", policy) as made:
        broker = PrivateKey.load(made.files.broker_key)
        now = datetime.now(UTC).replace(microsecond=0)
        hour = Validity(now, now + timedelta(hours=1))
        texts = [
            signed(PrivateKey.generate(), broker, CONNECT),
            issue_identity(foreign, subject=broker.public.did, attributes={"nation": "NO"}, validity=hour, now=now),
            cross_domain(home, other=foreign.public.did, validity=hour, now=now),
        ]
        (made.files.statements / "broker.jwt").write_text("\n".join(texts))
        made.start()
        yield made, home, foreign


def test_both_sides_of_a_connection_are_checked(attested: tuple[Alone, PrivateKey, PrivateKey]) -> None:
    made, home, foreign = attested
    own = PrivateKey.load(made.files.admin_key).public.did
    with pytest.raises(BrokerNotTrusted):  # the chain that it shows begins at a stranger
        joined(made, "ann", coordinator=own)
    for provider in (home, foreign):
        with joined(made, "ann", provider=provider.public.did, expect="$nation = 'NO'") as client:
            assert client.whoami().principal == "ann"
        for rule_ in ("$nation = 'IT'", "$rank > 3"):
            with pytest.raises(BrokerNotTrusted, match="does not meet"):
                joined(made, "ann", provider=provider.public.did, expect=rule_)
    with pytest.raises(BrokerNotTrusted):
        joined(made, "ann", provider=PrivateKey.generate().public.did)
    with joined(made, "ann") as client:  # nobody asked
        assert client.whoami().principal == "ann"


# -- identities -----------------------------------------------------------------------------------------------


def test_an_identity_statement_is_obtained_and_says_what_the_domain_says(shop: Alone) -> None:
    with joined(shop, "ann") as ann:
        (text,) = ann.obtain("identity")
        found = IDENTITY.read(text).value
        assert found.attributes["branch"] == "north"
        assert found.subject == shop.key("ann").public.did


def test_a_guest_comes_with_what_the_host_makes_of_its_statement(shop: Alone, tmp_path: Path) -> None:
    home = PrivateKey.load(shop.files.broker_key).public.did
    mapping = (AttributeMap("branch", "region", (("north", "uk-north"),)),)

    def hosting(made: Alone) -> Sequence[Change]:
        return [
            DeclareType(EventType(SALE, ADMINISTRATOR, {"item": Kind.STRING, "amount": Kind.FLOAT})),
            SetProvider(Provider(home, "shop", mapping)),
            SetConnect(True),
        ]

    with alone(tmp_path / "host", hosting) as host:
        host.start()
        with joined(shop, "ann") as at_home, joined(host, shop.key("ann"), guest_of=at_home) as guest:
            assert guest.principal == shop.key("ann").public.did
            wallet = guest._inner._session.wallet.shown(datetime.now(UTC))
            (text,) = wallet
            assert IDENTITY.read(text).value.attributes == {"region": "uk-north"}
        with joined(shop, "ann") as at_home:
            shown = Issued(at_home.issuer, ("identity",))
            with pytest.raises(ChainInvalid):  # without the mapping, what home says counts for nothing here
                joined(host, shop.key("ann"), present=[shown])


# -- requirements ---------------------------------------------------------------------------------------------


def test_an_event_goes_no_further_than_its_publishers_rule(shop: Alone) -> None:
    with joined(shop, "bob") as bob:
        with pytest.raises(PolicyRuleDenied):
            bob.publish(SALE, TEA)
        with pytest.raises(PolicyRuleDenied):
            bob.publish(SALE, TEA, requires="$branch = 'south'")
        assert bob.publish(SALE, TEA, requires="$branch = 'north' and $rank > 3").status == "accepted"
        results = bob.publish_many(
            [
                {"type": SALE, "data": TEA, "requires": "$branch = 'north'"},
                {"type": SALE, "data": TEA},
            ]
        )
        assert [one.status for one in results] == ["accepted", "refused"]
        assert results[1].refusal is not None
        assert results[1].refusal.code == "policy-rule"


def test_requirements_of_both_sides_are_met_at_delivery(shop: Alone) -> None:
    with (
        joined(shop, "bob") as bob,
        joined(shop, "ann") as ann,
        shop.deciding(),
        ann.subscribe(None, SALE, temporary=True, requires="$branch = 'south'") as wanted,
        ann.subscribe(None, SALE, temporary=True, requires="$branch = 'east'") as unwanted,
    ):
        bob.publish(SALE, {"item": "seen"}, requires="$branch = 'north'")
        bob.publish(SALE, {"item": "unseen"}, requires="$branch = 'north' and $rank = 1")
        bob.publish(SALE, {"item": "last"}, requires="$branch = 'north'")
        found = [wanted.next(20.0), wanted.next(20.0)]
        assert [one.data["item"] for one in found if one is not None] == ["seen", "last"]
        assert unwanted.next(0.5) is None


# -- commands and the example ---------------------------------------------------------------------------------


@pytest.fixture
def run(shop: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Commands of someone who has keys of their own and no directory of the domain."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_KEYS", str(tmp_path / "keys"))
    Keyring(tmp_path / "keys").new("eve")
    return lambda *args: CliRunner().invoke(app, list(args))


def there(shop: Alone) -> list[str]:
    return ["--node", shop.gateway.url, "--certificate", str(shop.files.tls_certificate)]


def test_a_stranger_publishes_from_the_command_line_by_what_it_was_given(
    shop: Alone, owner: PrivateKey, run: Callable[..., Result], tmp_path: Path
) -> None:
    for number, authority in enumerate((("--network", "*", "--may", "connect"), ("--type", SALE, "--may", "publish"))):
        given = ("cert", "issue", "--as", str(shop.files.admin_key), "--to", "eve", *authority)
        assert run(*given, "-o", f"{number}.jwt").exit_code == 0
    publish = ("publish", SALE, "item=tea", "--as", "eve", *there(shop))
    refused = run(*publish)
    assert (refused.exit_code, "[not-authenticated]" in refused.output) == (2, True)
    shown = ("--present", "0.jwt", "--present", "1.jwt", "--coordinator", owner.public.did)
    done = run(*publish, *shown)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("accepted")
    stranger = PrivateKey.generate().public.did
    assert "[broker-not-trusted]" in run(*publish, "--present", "0.jwt", "--coordinator", stranger).output

    (tmp_path / "chain.jwt").write_text((tmp_path / "0.jwt").read_text() + (tmp_path / "1.jwt").read_text())
    arguments = [shop.gateway.url, str(tmp_path / "keys" / "eve.key"), str(shop.files.tls_certificate), "chain.jwt"]
    example = [sys.executable, str(EXAMPLES / "chain.py"), *arguments]
    told = subprocess.run(example, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stdout.split()[:2] == ["accepted", "as"]


def test_a_stranger_declares_the_type_that_it_signed(shop: Alone, run: Callable[..., Result]) -> None:
    given = ("cert", "issue", "--as", str(shop.files.admin_key), "--to", "eve", "--network", "*")
    assert run(*given, "--may", "connect,install", "-o", "install.jwt").exit_code == 0
    sign = ("--as", "eve", "--with", "install.jwt", "-o", "t.jwt")
    assert run("type", "sign", "eve.News", "text:string", *sign).exit_code == 0
    declare = ("type", "declare", "t.jwt", "--as", "eve", *there(shop), "--present", "install.jwt")
    done = run(*declare)
    assert done.exit_code == 0, done.output
    assert "declared eve.News" in done.output
    with joined(shop, "ann") as ann:
        assert ann.type("eve.News").statement == Path("t.jwt").read_text().strip()
    for word, said in (("declassify", ["shop.Sale"]), ("reclassify", [])):
        told = run("type", word, "eve.News", "--for", "shop.Sale", *declare[3:])
        assert told.exit_code == 0, told.output
        with joined(shop, "ann") as ann:
            assert ann.type("eve.News").declassified_for == said
    Path("t.jwt").unlink()
    assert run("type", "sign", "shop.Sale", "text:string", *sign).exit_code == 0
    taken = run(*declare)
    assert taken.exit_code == 2
    assert "shop.Sale" in taken.output


def test_requirements_and_revoking_from_the_command_line(shop: Alone, run: Callable[..., Result]) -> None:
    bob = ("publish", SALE, "item=tea", "--key", str(shop.files.keys / "bob.pem"), *there(shop))
    refused = run(*bob)
    assert (refused.exit_code, "policy-rule" in refused.output) == (1, True)
    assert run(*bob, "--requires", "$branch = 'north'").exit_code == 0
    assert "[bad-expression]" in run(*bob, "--requires", "$branch =").output
    with joined(shop, "ann") as ann:
        certificates = ann.obtain()
        ids = [CERTIFICATE.read(text).value for text in certificates]
        mine = next(one.id for one in ids if one.subject == shop.key("ann").public.did and PUBLISH in one.authority)
        ann.present(certificates)
        revoke = ("cert", "revoke", mine, "--key", str(shop.files.admin_key), *there(shop))
        done = run(*revoke)
        assert done.exit_code == 0, done.output
        assert "is revoked: list" in done.output
        with pytest.raises(Revoked):
            ann.present([text for text in certificates if CERTIFICATE.read(text).value.id == mine])
    stranger = ("cert", "revoke", f"s{'A' * 22}", "--key", str(shop.files.keys / "bob.pem"), *there(shop))
    assert "[not-found]" in run(*stranger).output
