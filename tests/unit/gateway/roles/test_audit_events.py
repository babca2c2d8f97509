"""Entering, ending and refusal of an audited role are in the log, once, whatever is killed in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.lang.rolefile import parse_rolefile
from headgate.ledger import Ledger
from headgate.model.changes import Batch, DeclarePrincipal, EndCredential, GrantRole, SetRolefile
from headgate.model.state import ADMINISTRATOR
from headgate.node.auditor import Auditor
from headgate.roles.requests.audit import AUDITED, TYPES
from headgate.storage.shared import Where
from strategies.role_serving import CONF, Office, office
from strategies.serving import eventually


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.create(tmp_path / "ledger.db", administrator=ADMINISTRATOR)
    yield made
    made.close()


def commit(ledger: Ledger, *changes: Any) -> int:
    return ledger.commit(Batch(ADMINISTRATOR, changes))


ROLES = "audit Override\nOverride(d) <- Login.On(d)*\nPlain(d) <- Login.On(d)*"


def test_an_outbox_follows_from_the_ledger_and_from_how_far_it_came(stored_in: Where, ledger: Ledger) -> None:
    commit(ledger, DeclarePrincipal("dan"), SetRolefile("Ward", parse_rolefile(ROLES)))
    commit(
        ledger, GrantRole("o", "Ward", "Override", ("dan",), "dan"), GrantRole("p", "Ward", "Plain", ("dan",), "dan")
    )
    ended = commit(ledger, EndCredential("o"), EndCredential("p"))
    auditor = Auditor(stored_in, ledger)
    drafts, upto = auditor.pending(ADMINISTRATOR, ended)
    assert [one.id for one in drafts] == ["entered:o@2", "ended:o@3"]
    assert drafts[1].values["reason"] == "it was revoked"
    assert auditor.pending(ADMINISTRATOR, ended) == (drafts, upto), "killed before it was written down: the same again"
    auditor.done(upto)
    auditor.close()
    again = Auditor(stored_in, ledger)
    assert again.pending(ADMINISTRATOR, ended) == ([], ended)
    again.close()


def test_what_is_audited_is_what_was_audited_then(tmp_path: Path, ledger: Ledger) -> None:
    commit(ledger, DeclarePrincipal("dan"), SetRolefile("Ward", parse_rolefile(ROLES)))
    commit(ledger, GrantRole("o", "Ward", "Override", ("dan",), "dan"))
    commit(ledger, SetRolefile("Ward", parse_rolefile(ROLES.removeprefix("audit Override\n"))))
    newest = commit(ledger, EndCredential("o"))
    assert [(one.word, one.version) for one in ledger.role_turns(0, newest)] == [("entered", 2)]
    assert AUDITED in ledger.state().types


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with office(tmp_path_factory.mktemp("conf") / "domain") as made:
        made.served.commit(SetRolefile("Conf", parse_rolefile(f"audit Chair\n{CONF}")))
        yield made


def said(conf: Office, word: str) -> list[dict[str, Any]]:
    kind = next(name for one, name in TYPES.items() if one == word)
    return [dict(one.values) for one in conf.served.domain.events() if one.type == kind]


def test_at_a_gateway(conf: Office) -> None:
    conf.log_on("carl")
    assert conf.denied("carl", "/Conf/enter", role="Chair")[0] == "credentials"
    (refused,) = said(conf, "refused")
    assert (refused["principal"], refused["role"], refused["reason"]) == ("carl", "Chair", "credentials")
    conf.log_on("anna")
    held = conf.enter("anna", "Chair")
    eventually(lambda: len(said(conf, "entered")) == 1)
    conf.leave("anna", held["id"])
    eventually(lambda: len(said(conf, "ended")) == 1)
    (entered,), (ended,) = said(conf, "entered"), said(conf, "ended")
    assert entered["id"] == ended["id"] == held["id"]
    assert (entered["args"], ended["reason"]) == ("'anna'", "its holder left")
    assert (entered["note"], ended["note"]) == ("anna enters Chair at Conf", "anna leaves Chair at Conf")
    assert len(said(conf, "refused")) == 1


def test_a_refusal_tells_which_statement_came_nearest(conf: Office) -> None:
    conf.log_on("dora")
    told = conf.post("dora", "/Conf/enter", role="Chair").json()
    assert told["nearest"]["part"] == "condition"
    assert told["nearest"]["what"] == "a condition that you may not see"
    assert "chairs" not in str(told)
