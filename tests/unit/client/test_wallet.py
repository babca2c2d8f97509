"""What a client shows, and how it is kept fresh: on a clock that the test turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.client import Issued, Timing, Unreachable, aio
from headgate.client.gateways import Address, GatewayLink
from headgate.client.wallet import LONGEST_PAUSE, SHORTEST, Renewal, Wallet, held, texts_in
from headgate.model.authority import NetworkAuthority, Validity
from headgate.model.errors import BadDefinition, BadStatement, HeadgateError, NotFound, TooLarge
from headgate.model.rights import Action
from headgate.trust.certificates import issue_certificate, issue_revocations
from headgate.trust.identities import cross_domain, issue_identity
from headgate.trust.keys import PrivateKey
from headgate.trust.presented import MAX_SHOWN

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
KEY, OTHER = PrivateKey.generate(), PrivateKey.generate()


class Clock:
    """Time that passes only while someone sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)

    @property
    def timing(self) -> Timing:
        return Timing(lambda: self.seconds, self.sleep, lambda: 0.5)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gateway() -> GatewayLink:
    return GatewayLink(Address.parse("http://localhost:1"), None)  # nothing is ever sent to it


def certificate(now: datetime, seconds: float | None = None) -> str:
    validity = Validity() if seconds is None else Validity(now, now + timedelta(seconds=seconds))
    authority = [NetworkAuthority(frozenset({Action.CONNECT}))]
    return issue_certificate(KEY, subject=OTHER.public.did, authority=authority, now=now, validity=validity)


def identity(now: datetime, seconds: float) -> str:
    validity = Validity(now, now + timedelta(seconds=seconds))
    return issue_identity(KEY, subject=OTHER.public.did, attributes={}, validity=validity, now=now)


class Service:
    """Issues certificates, or fails."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds
        self.failing = 0
        self.asked: list[float] = []

    async def fetch(self, gateway: GatewayLink) -> Sequence[str]:
        self.asked.append(self.clock.seconds)
        if self.failing:
            self.failing -= 1
            raise Unreachable("no gateway answered", [])
        return [certificate(self.clock.now, self.seconds)]


# -- what is shown --------------------------------------------------------------------------------------------


def test_every_kind_of_statement_is_held_with_its_end() -> None:
    hour = Validity(START, START + timedelta(hours=1))
    ending = [certificate(START, 3600), identity(START, 3600)]
    ending.append(cross_domain(KEY, other=OTHER.public.did, validity=hour, now=START))
    assert {held(text).until for text in ending} == {START + timedelta(hours=1)}
    endless = [certificate(START), issue_revocations(KEY, number=1, revoked=[], now=START)]
    assert {held(text).until for text in endless} == {None}


@pytest.mark.parametrize("text", ["", "hello", "a.b.c", "é"])
def test_what_is_no_statement_is_not_held(text: str, clock: Clock) -> None:
    with pytest.raises(BadStatement):
        Wallet([text], clock.timing)


def test_a_forged_statement_is_not_shown(clock: Clock) -> None:
    head, body, _ = certificate(START).split(".")
    with pytest.raises(BadStatement, match="did not sign"):
        Wallet([f"{head}.{body}.{'A' * 86}"], clock.timing)


def test_what_has_ended_is_left_out_while_anything_is_left(clock: Clock) -> None:
    short, long = certificate(START, 10), certificate(START, 1000)
    both = Wallet([short, long, short], clock.timing)
    assert both.shown(START) == [short, long]
    assert both.shown(START + timedelta(seconds=10)) == [long]
    alone = Wallet([short], clock.timing)
    assert alone.shown(START + timedelta(seconds=20)) == [short]  # the gateway says what is wrong with it


def test_a_file_has_one_statement_a_line(tmp_path: Path) -> None:
    file = tmp_path / "bag.jwt"
    first, second = certificate(START), identity(START, 60)
    file.write_text(f"{first}\n\n  {second}\n")
    assert texts_in(file) == [first, second]
    file.write_text("nonsense\n")
    with pytest.raises(BadStatement) as refused:
        texts_in(file)
    assert str(file) in str(refused.value)
    with pytest.raises(NotFound):
        texts_in(tmp_path / "none.jwt")


def test_a_wallet_has_an_end(clock: Clock) -> None:
    many = [issue_revocations(KEY, number=n, revoked=[], now=START) for n in range(MAX_SHOWN + 1)]
    with pytest.raises(TooLarge):
        Wallet(many, clock.timing)
    full = Wallet(many[:-1], clock.timing)
    with pytest.raises(TooLarge):
        full.add(many[-1:])
    assert len(full.shown(START)) == MAX_SHOWN


# -- keeping fresh --------------------------------------------------------------------------------------------


def renewal_of(wallet: Wallet, gateway: GatewayLink, show: Callable[[], Awaitable[object]], clock: Clock) -> Renewal:
    return Renewal(wallet.wait, lambda again: wallet.refresh(gateway, show, again), clock.timing, SHORTEST)


def run_for(
    clock: Clock, wallet: Wallet, gateway: GatewayLink, seconds: float, shown: list[float]
) -> HeadgateError | None:
    """Renew until so many seconds have passed."""

    async def show() -> None:
        shown.append(clock.seconds)

    async def story() -> object:
        renewal = renewal_of(wallet, gateway, show, clock)
        await wallet.refresh(gateway, show)
        renewal.wake()
        while clock.seconds < seconds:
            await asyncio.sleep(0)
        told = renewal.trouble
        await renewal.stop()
        return told

    return asyncio.run(story())  # type: ignore[return-value]


def test_statements_are_renewed_well_before_their_end_and_shown(clock: Clock, gateway: GatewayLink) -> None:
    service, shown = Service(clock, 100), list[float]()
    wallet = Wallet([], clock.timing)
    wallet.add_source(service.fetch, early=False)
    assert run_for(clock, wallet, gateway, 1000, shown) is None
    between = [b - a for a, b in zip(service.asked, service.asked[1:], strict=False)]
    assert len(between) > 10
    assert all(40 < pause < 60 for pause in between)
    assert shown == service.asked
    assert len(wallet.shown(clock.now)) == 1


def test_after_a_failure_it_is_tried_again_with_growing_pauses(clock: Clock, gateway: GatewayLink) -> None:
    service, shown = Service(clock, 3600), list[float]()
    wallet = Wallet([], clock.timing)
    wallet.add_source(service.fetch, early=False)

    async def story() -> list[BaseException | None]:
        async def show() -> None:
            shown.append(clock.seconds)

        renewal = renewal_of(wallet, gateway, show, clock)
        await wallet.refresh(gateway, show)
        before = wallet.shown(clock.now)
        service.failing = 12
        renewal.wake()
        troubles: list[BaseException | None] = []
        while service.failing:
            await asyncio.sleep(0)
            troubles.append(renewal.trouble)
        assert wallet.shown(clock.now) == before  # the old one until there is another
        while renewal.trouble is not None:
            await asyncio.sleep(0)
        await renewal.stop()
        return troubles

    troubles = asyncio.run(story())
    assert isinstance(troubles[-1], Unreachable)
    pauses = clock.pauses[1:12]
    assert pauses[:5] == sorted(pauses[:5])
    assert pauses[0] < 1
    assert max(pauses) <= LONGEST_PAUSE
    assert len(shown) == 2


def test_a_failure_to_show_is_tried_again_too(clock: Clock, gateway: GatewayLink) -> None:
    service = Service(clock, 100)
    wallet = Wallet([], clock.timing)
    wallet.add_source(service.fetch, early=False)
    tried: list[float] = []

    async def show() -> None:
        tried.append(clock.seconds)
        if len(tried) in (2, 3):
            raise Unreachable("no gateway answered", [])

    async def story() -> None:
        renewal = renewal_of(wallet, gateway, show, clock)
        await wallet.refresh(gateway, show)
        renewal.wake()
        while len(tried) < 4:
            await asyncio.sleep(0)
        await renewal.stop()

    asyncio.run(story())
    assert tried[3] - tried[1] < 5  # it does not wait for the next renewal
    assert len(service.asked) == 2  # and need not fetch again


def test_early_statements_are_fetched_before_there_is_a_session(clock: Clock, gateway: GatewayLink) -> None:
    early, late = Service(clock, 100), Service(clock, 100)
    wallet = Wallet([], clock.timing)
    wallet.add_source(early.fetch, early=True)
    wallet.add_source(late.fetch, early=False)

    async def story() -> None:
        await wallet.fetch(gateway, early=True)
        await wallet.fetch(gateway, early=True)
        assert (len(early.asked), len(late.asked)) == (1, 0)
        wallet.spoil()
        early.failing = 1
        await wallet.fetch(gateway, early=True)  # what it had will do
        assert len(wallet.shown(clock.now)) == 1

    asyncio.run(story())
    empty = Wallet([], clock.timing)
    early.failing = 1
    empty.add_source(early.fetch, early=True)
    with pytest.raises(Unreachable):
        asyncio.run(empty.fetch(gateway, early=True))


# -- asking ---------------------------------------------------------------------------------------------------


def test_what_no_service_issues_is_not_asked_for(directory: Path) -> None:
    with pytest.raises(BadDefinition, match="medals"):
        aio.connect("https://localhost:1", directory / "keys" / "till.pem", obtain=["medals"])  # type: ignore[list-item]
    with pytest.raises(BadDefinition):
        Issued(None, ("medals",))  # type: ignore[arg-type]
