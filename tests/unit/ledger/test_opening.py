"""Only a whole ledger that this Headgate understands is opened."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.ledger import FORMAT, Ledger
from headgate.model.changes import AddMember, AddRule, Batch, DeclarePrincipal, Subscribe
from headgate.model.errors import BadDefinition, Damaged, NotFound, TooNew
from headgate.model.rights import Action, Rule, Subscription

Commit = Callable[..., int]


def edit(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as raw:
        for statement in statements:
            raw.execute(statement)
    raw.close()


@pytest.fixture
def written(ledger: Ledger, path: Path, furnished: int, commit: Commit) -> Path:
    """A closed ledger with some of everything, larger than a few pages."""
    commit(
        AddMember("staff", "bob"),
        AddRule(Rule("r1", "staff", frozenset({Action.SUBSCRIBE}), "news.Story")),
        AddRule(Rule("r2", "staff", frozenset({Action.SUBSCRIBE}), "news.Story")),
        *(DeclarePrincipal(f"p{i}", {"n": i}) for i in range(500)),
    )
    commit(*(Subscribe(Subscription(f"s{i}", "bob", "news.Story")) for i in range(500)))
    ledger.record_starting_point("main", 1, 5)
    ledger.record_starting_point("main", 2, 9)
    ledger.close()
    return path


def test_a_ledger_opens_again(written: Path) -> None:
    for where in (written, str(written), f"sqlite:///{written}"):
        with Ledger.open(where) as ledger:
            assert ledger.version == 3
            ledger.check()


def test_the_administrator_is_remembered(path: Path) -> None:
    Ledger.create(path, administrator="did:key:z6Mk").close()
    with Ledger.open(path) as ledger:
        assert ledger.administrator == "did:key:z6Mk"
        assert ledger.state().administrator == "did:key:z6Mk"
        assert ledger.commit(Batch("did:key:z6Mk")) == 1


def test_a_closed_ledger_says_so(ledger: Ledger) -> None:
    ledger.close()
    with pytest.raises(RuntimeError, match="closed"):
        _ = ledger.version


def test_a_missing_file_or_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"missing\.db"):
        Ledger.open(tmp_path / "missing.db")
    assert not (tmp_path / "missing.db").exists()
    with pytest.raises(NotFound):
        Ledger.open(tmp_path)
    with pytest.raises(NotFound, match="no folder"):
        Ledger.create(tmp_path / "nowhere" / "l.db")


def test_a_ledger_is_not_created_over_another(written: Path, tmp_path: Path) -> None:
    with pytest.raises(BadDefinition, match="already exists"):
        Ledger.create(written)
    other = tmp_path / "other.db"
    edit(other, "create table accounts (x)")
    with pytest.raises(BadDefinition, match="another database"):
        Ledger.create(other)
    with Ledger.open(written) as ledger:
        assert ledger.version == 3


def test_an_interrupted_creation_can_be_repeated(path: Path) -> None:
    path.touch()
    with pytest.raises(Damaged, match="not a ledger"):
        Ledger.open(path)
    Ledger.create(path).close()
    Ledger.open(path).close()


def test_a_newer_format_is_refused_in_words(written: Path) -> None:
    edit(written, f"update meta set value = '{FORMAT + 1}' where name = 'format'", "drop table members")
    edit(written, "update meta set value = '9.9' where name = 'headgate'")
    with pytest.raises(TooNew, match=rf"format {FORMAT + 1}, written by Headgate 9\.9.*up to {FORMAT}") as refused:
        Ledger.open(written)
    assert str(written) in str(refused.value)


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_damaged(written: Path, keep: float) -> None:
    whole = written.read_bytes()
    written.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(Damaged) as refused:
        Ledger.open(written)
    assert str(written) in str(refused.value)


def test_a_file_of_something_else_is_damaged(path: Path) -> None:
    path.write_bytes(b"This is no database." * 1000)
    for use in (Ledger.open, Ledger.create):
        with pytest.raises(Damaged) as refused:
            use(path)
        assert str(path) in str(refused.value)
    assert path.read_bytes() == b"This is no database." * 1000


@pytest.mark.parametrize("page", range(1, 20, 3))
def test_garbage_in_a_page_is_damage(written: Path, page: int) -> None:
    whole = bytearray(written.read_bytes())
    whole[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    written.write_bytes(whole)
    with pytest.raises(Damaged) as refused:
        Ledger.open(written)
    assert str(written) in str(refused.value)


@pytest.mark.parametrize(
    "harm",
    [
        "delete from versions where version = 2",
        "delete from versions where version = 1",
        "drop table members",
        "delete from meta where name = 'format'",
        "update meta set value = 'one' where name = 'format'",
    ],
)
def test_harm_that_opening_sees(written: Path, harm: str) -> None:
    edit(written, harm)
    with pytest.raises(Damaged) as refused:
        Ledger.open(written)
    assert str(written) in str(refused.value)


@pytest.mark.parametrize(
    "harm",
    [
        "update rules set from_version = 9",
        "update rules set to_version = from_version",
        "update rules set rank = 0",
        "update rules set actions = '[\"fly\"]'",
        'update rules set "where" = \'"x >"\'',
        "update rules set effect = 'maybe'",
        "update subscriptions set \"where\" = 'true' where id = 's7'",
        "update subject_attributes set value = '{}'",
        "update types set definition = '{}'",
        "update versions set note = '' where version = 1",
        "delete from groups where name = 'staff'",
        "delete from principals where name = 'p3'",
        "update starting_points set seq = 1 where version = 2",
        "update starting_points set version = 7 where version = 2",
        "insert into members (\"group\", member, from_version, to_version) values ('staff', 'bob', 1, 3)",
    ],
)
def test_harm_that_a_check_finds(written: Path, harm: str) -> None:
    edit(written, harm)
    with Ledger.open(written) as ledger, pytest.raises(Damaged) as refused:
        ledger.check()
    assert str(written) in str(refused.value)


def test_a_state_that_cannot_be_read_is_damaged_and_names_the_row(written: Path) -> None:
    edit(written, "update subscriptions set \"where\" = '\"x >\"' where id = 's7'")
    with Ledger.open(written) as ledger:
        with pytest.raises(Damaged, match="`s7`") as refused:
            ledger.state()
        assert str(written) in str(refused.value)
        assert len(ledger.state(2).principals) == 502
