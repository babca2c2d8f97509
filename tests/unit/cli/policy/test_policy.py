"""`headgate policy`: the plan in words, and the ledger made to follow the files. No Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.cli.policy import policy
from headgate.cli.shared.common import data_directory
from headgate.commands.publishing.local import LocalPublisher
from headgate.ledger import Ledger
from headgate.model.changes import Batch, DeclarePrincipal
from headgate.model.events import Draft
from headgate.node.config import Files
from headgate.node.domain import Domain
from headgate.pipeline.paths import Paths

Run = Callable[..., Result]
FILE = """\
types: {shop.Sale: {owner: shop, attributes: {item: string, price: float, card: string}}}
principals: {shop: {}, till: {}, ann: {}, bob: {}, cid: {}, dan: {}}
groups: {analysts: [ann, bob, cid, dan]}
connect: open
policy:
  - {id: sells, who: till, may: publish, type: shop.Sale}
  - {id: reads, who: analysts, may: subscribe, type: shop.Sale, where: "price < 100", attributes: [item, price]}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A domain with settings, and its policy beside its data."""
    Domain.create(tmp_path / "data").close()
    Files(tmp_path).config.touch()
    Files(tmp_path).policy.mkdir()
    (Files(tmp_path).policy / "shop.yaml").write_text(FILE)
    return Files(tmp_path).policy


@pytest.fixture
def run() -> Run:
    def done(*args: str, answer: str | None = None) -> Result:
        environment = {"COLUMNS": "200", "NO_COLOR": "1", "HEADGATE_DOMAIN": None}
        return CliRunner(env=environment).invoke(app, ["policy", *args], input=answer)

    return done


def change(files: Path, old: str, new: str) -> None:
    text = (files / "shop.yaml").read_text()
    assert old in text
    (files / "shop.yaml").write_text(text.replace(old, new))


def version(files: Path) -> int:
    with Ledger.open(Paths(files.parent / "data").ledger) as ledger:
        return ledger.version


def words(result: Result) -> str:
    return " ".join(result.output.split())


def test_a_plan_says_who_gains_and_changes_nothing(files: Path, run: Run) -> None:
    result = run("plan", str(files))
    assert result.exit_code == 0, result.output
    said = words(result)
    assert "Who gains and who loses (from version 0 to 1)" in said
    assert "the 4 members of `analysts` + may connect + sees `item`, `price` of `shop.Sale` where price < 100" in said
    assert "`till` + may connect + may publish `shop.Sale`" in said
    assert "rule `reads` added: `analysts` may subscribe `shop.Sale` (`item`, `price`) where price < 100" in said
    assert said.index("Who gains") < said.index("Changes") < said.index("Warnings")
    assert "`shop`, `till` and 4 more have no key, and cannot connect" in said
    assert version(files) == 0


def test_the_plan_as_facts(files: Path, run: Run) -> None:
    found = json.loads(run("plan", str(files), "--json").output)
    assert found["version"] == 0
    assert {one["kind"] for one in found["changes"]} == {"type", "principal", "group", "member", "rule", "setting"}
    (analysts,) = (one for one in found["effects"] if one["who"] == ["ann", "bob", "cid", "dan"])
    assert analysts["gains"][1] == {
        "turn": "gains",
        "action": "subscribe",
        "type": "shop.Sale",
        "attributes": ["item", "price"],
        "before": None,
        "after": "price < 100",
    }
    assert [(one["concern"], len(one["names"])) for one in found["warnings"]] == [("no-key", 6)]


def test_what_is_lost_and_otherwise_is_said(files: Path, run: Run) -> None:
    assert run("apply", str(files), "--yes").exit_code == 0
    change(files, "price < 100", "price < 50")
    change(files, "ann, bob, cid, dan]", "ann, bob, cid]")
    change(files, "{id: sells, who: till, may: publish", "{id: sells, who: till, may: audit")
    said = words(run("plan", str(files)))
    assert "`till` - may no longer publish `shop.Sale` + may audit `shop.Sale`" in said
    assert (
        "`ann`, `bob`, `cid` ~ sees `item`, `price` of `shop.Sale` where price < 50; before: where price < 100" in said
    )
    assert "`dan` - no longer sees `item`, `price` of `shop.Sale` where price < 100" in said
    assert "`dan` left group `analysts`" in said


def test_check_tells_by_its_status(files: Path, run: Run) -> None:
    assert run("plan", str(files), "--check").exit_code == 1
    assert run("apply", str(files), "--yes").exit_code == 0
    result = run("plan", str(files), "--check")
    assert result.exit_code == 0
    assert "nothing to change: version 1 is this policy" in result.output
    assert "nothing to change" in run("apply", str(files)).output  # nobody needs to be asked
    assert version(files) == 1


def test_apply_makes_one_version_with_its_starting_points(files: Path, run: Run) -> None:
    first = run("apply", str(files), "--yes", "--note", "opening day")
    assert "applied as version 1" in first.output
    assert "there is no stream yet" in first.output
    with Domain.open(files.parent / "data") as domain:
        LocalPublisher(domain, advertise=False).publish(Draft("e", "till", "shop.Sale", {"item": "lamp"}))
        assert domain.ledger.versions()[0].note == "opening day"
    change(files, "price < 100", "price < 50")
    second = run("apply", str(files), "-y")
    assert "applied as version 2" in second.output
    assert "from event 2 of stream `main` on" in second.output
    assert run("plan", str(files), "--check").exit_code == 0


def test_nobody_is_asked_where_nobody_is(files: Path, run: Run) -> None:
    result = run("apply", str(files), answer="y\n")
    assert result.exit_code == 2
    assert "add --yes" in words(result)
    assert version(files) == 0


@pytest.mark.parametrize(("answer", "status", "now"), [("y\n", 0, 1), ("n\n", 1, 0), ("\n", 1, 0)])
def test_somebody_is_asked(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, status: int, now: int
) -> None:
    monkeypatch.setattr(policy, "_is_terminal", lambda: True)
    result = run("apply", str(files), answer=answer)
    assert result.exit_code == status, result.output
    assert "Apply this as version 1?" in result.output
    assert ("nothing was changed" in result.output) is (now == 0)
    assert version(files) == now


def test_a_ledger_that_moved_on_meanwhile_is_left_alone(files: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile() -> bool:
        with Domain.open(files.parent / "data") as domain:
            domain.commit(Batch("administrator", (DeclarePrincipal("eve"),)))
        return True

    monkeypatch.setattr(policy, "_is_terminal", meanwhile)
    result = run("apply", str(files), answer="y\n")
    assert result.exit_code == 2
    assert "version-conflict" in result.output
    assert "version 1 changed the policy since version 0, which is by `administrator`" in words(result)
    assert "plan again" in result.output
    with Ledger.open(Paths(files.parent / "data").ledger) as ledger:
        assert (ledger.version, set(ledger.state().principals)) == (1, {"eve"})


@pytest.fixture
def traces(files: Path) -> Path:
    """A policy whose predicate leaves a trace wherever its module runs."""
    trace = files.parent / "trace"
    source = f"open({str(trace)!r}, 'w').close()\n\n\ndef dear(event, size):\n    return event['price'] > 5\n"
    (files / "checks.py").write_text(source)
    change(files, "connect: open\n", "connect: open\npredicates: {dear: 'checks:dear'}\n")
    change(files, "price < 100", "predicate dear()")
    return trace


def test_predicates_are_kept_with_the_domain(files: Path, run: Run, traces: Path) -> None:
    assert run("apply", str(files), "--yes", "--run-python").exit_code == 0
    assert traces.exists()
    with Domain.open(files.parent / "data") as domain:
        assert set(domain.predicates(domain.ledger.state())) == {"dear"}
    (files / "checks.py").write_text("def dear(event, size):\n    return event['price'] > 6\n")
    assert "predicate `dear` changed" in run("plan", str(files)).output
    assert run("apply", str(files), "--yes", "--run-python").exit_code == 0
    assert run("plan", str(files), "--check").exit_code == 0
    assert run("apply", str(files), "--yes").exit_code == 0, "it is registered already, as it is"


def test_no_python_of_the_directory_runs_unless_told_to(files: Path, run: Run, traces: Path) -> None:
    planned = run("plan", str(files))
    assert planned.exit_code == 0
    assert "not run, and so unknown: `dear`" in planned.output
    assert json.loads(run("plan", str(files), "--json").stdout)["not_run"] == ["dear"]
    assert "not run" in run("check", str(files)).output
    assert run("check", str(files), "--can-see", "shop.Sale.price").exit_code in (0, 1)
    refused = run("apply", str(files), "--yes")
    assert refused.exit_code == 2
    assert "[bad-definition]" in refused.output
    assert "--run-python" in refused.output
    assert not traces.exists()
    with Ledger.open(Paths(files.parent / "data").ledger) as ledger:
        assert ledger.version == 0, "nothing was applied"
    told = run("plan", str(files), "--run-python")
    assert "not run" not in told.output
    assert traces.exists()


def test_a_link_out_of_the_directory_is_no_module_of_it(files: Path, run: Run, traces: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    (files / "checks.py").rename(outside)
    (files / "checks.py").symlink_to(outside)
    for command in ("plan", "check", "apply"):
        refused = run(command, str(files), "--run-python")
        assert refused.exit_code == 2
        assert "leads out of" in " ".join(refused.output.split())
    assert not traces.exists()
    (files / "real").mkdir()
    outside.rename(files / "real" / "checks.py")
    (files / "checks.py").unlink()
    (files / "checks.py").symlink_to(files / "real" / "checks.py")
    assert run("plan", str(files), "--run-python").exit_code == 0, "a link within the directory is one's own"


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("connect: open", "connect: ajar", "bad-scenario", "shop.yaml:4: key `connect`"),
        ("policy:", "polciy:", "bad-scenario", "perhaps `policy`"),
        ("price < 100", "prize < 100", "bad-expression", "has no attribute `prize`"),
    ],
)
def test_a_bad_policy_is_refused_by_both(files: Path, run: Run, old: str, new: str, code: str, said: str) -> None:
    change(files, old, new)
    for command in (["plan"], ["apply", "--yes"]):
        result = run(command[0], str(files), *command[1:])
        assert result.exit_code == 2
        assert code in result.output
        assert said in words(result)
    assert version(files) == 0


def test_a_type_that_loses_an_attribute_is_refused(files: Path, run: Run) -> None:
    assert run("apply", str(files), "--yes").exit_code == 0
    change(files, ", card: string", "")
    result = run("plan", str(files))
    assert result.exit_code == 2
    assert "`shop.Sale` loses its attribute `card`" in words(result)
    change(files, "price: float", "price: float, card: string, tip: float")
    assert "type `shop.Sale` changed" in run("plan", str(files)).output


def test_warnings_say_what_is_odd(files: Path, run: Run) -> None:
    with (files / "shop.yaml").open("a") as file:
        file.write("  - {id: idle, who: ann, may: subscribe, type: shop.Sale, effect: forbid, where: 'price > 200'}\n")
        file.write(
            "  - {id: again, who: bob, may: subscribe, type: shop.Sale, where: 'price < 5', attributes: [item]}\n"
        )
        file.write("  - {id: none, who: nobody, may: publish, type: shop.Sale}\n")
    change(files, "groups: {", "groups: {nobody: [], ")
    said = words(run("plan", str(files)))
    assert "the forbid `idle` takes nothing away" in said
    assert "the grant `again` gives nothing" in said
    assert "`nobody` has no members, so `none` speaks to nobody" in said
    change(files, "groups: {nobody: [], ", "groups: {nobody: [patinet], wards: [north, south], ")
    said = words(run("plan", str(files)))
    assert "`nobody` has no principals as members, so `none` speaks to nobody" in said
    assert "`patinet` in `nobody` is no principal: it counts as a value, and no rule speaks to it" in said
    assert "`north`, `south` in `wards` are no principals: they count as values" in said
    assert "`patinet` in `nobody` is no principal" in words(run("check", str(files)))


def test_thousands_are_told_in_a_few_lines(files: Path, run: Run) -> None:
    many = [f"c{n}" for n in range(2_000)]
    people = ", ".join(f"{name}: {{attributes: {{seat: {n}}}}}" for n, name in enumerate(many))
    (files / "many.yaml").write_text(
        f"principals: {{{people}}}\ngroups: {{clients: [{', '.join(many)}]}}\n"
        "policy: [{id: c, who: clients, may: subscribe, type: shop.Sale, where: 'price > $seat'}]\n"
    )
    result = run("plan", str(files))
    said = words(result)
    assert (
        "the 2,000 members of `clients` + may connect + sees `item`, `price`, `card` of `shop.Sale` where price > $seat"
        in said
    )
    assert "more; `--json` has them all" in said
    assert len(result.output.splitlines()) < 150


# -- where the domain is --------------------------------------------------------------------------------------


def test_a_domain_is_found_by_its_settings_or_its_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare, whole = tmp_path / "bare", tmp_path / "whole"
    Domain.create(bare).close()
    Domain.create(whole / "data").close()
    assert data_directory(bare) == bare
    assert data_directory(whole) == whole / "data"
    Files(whole).config.touch()
    assert data_directory(whole) == whole / "data"
    assert data_directory(whole / "data") == whole / "data"
    monkeypatch.chdir(whole)
    assert data_directory(Path()) == Path("data")


def test_every_command_finds_the_domain_it_is_in(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert run("apply", str(files), "--yes").exit_code == 0
    monkeypatch.chdir(files.parent)
    found = CliRunner(env={"HEADGATE_DOMAIN": None}).invoke(app, ["versions", "--json"])
    assert [one["version"] for one in json.loads(found.output)] == [1]
    monkeypatch.chdir(files)
    assert run("plan", ".", "--check").exit_code == 0  # the policy stands in the domain
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    found = CliRunner(env={"HEADGATE_DOMAIN": None}).invoke(app, ["versions"])
    assert found.exit_code == 2
    assert "the current directory is not a domain" in " ".join(found.output.split())
    (elsewhere / "policy").mkdir()
    (elsewhere / "policy" / "a.yaml").write_text(FILE)
    assert run("plan", "policy").exit_code == 2
    assert run("plan", "policy", "--domain", str(files.parent), "--check").exit_code == 0


def test_help_has_examples(run: Run) -> None:
    for command in ("plan", "apply"):
        shown = words(run(command, "--help"))
        assert f"headgate policy {command} policy" in shown
        assert "Exit status" in shown


def test_authority_is_told_in_words_and_applied_once(files: Path, run: Run) -> None:
    assert run("apply", str(files), "--yes").exit_code == 0
    (files / "trust.yaml").write_text(
        "coordinator: did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH\n"
        "principals: {desk: {policy_rule: '$level > 1'}}\n"
        "providers: [{name: us, as: administrator}, {name: them, as: shop, mapping: {rank: level}}]\n"
        "issuing: [{id: day, who: analysts, type: 'shop.*', actions: subscribe, seconds: 3600}]\n"
    )
    said = run("plan", str(files)).output
    for words in (
        "the requirements of `desk` must be narrower than `$level > 1`",
        "the network is coordinated by did:key:z6Mkp",
        "issuing rule `day` for `analysts`, 3600 s each time",
        "identity provider `us`",
        "provider of guests `them`, shop",
    ):
        assert words in said
    assert run("apply", str(files), "--yes").exit_code == 0
    assert run("plan", str(files), "--check").exit_code == 0
    (files / "trust.yaml").unlink()
    assert "this domain coordinates the network itself" in run("plan", str(files)).output


ATTESTED = """\
types: {shop.Sale: {owner: shop, attributes: {item: string}}}
principals: {shop: {}, till: {}, van: {}, idp: {}}
providers: [{name: shop-ids, as: idp}]
connect: open
policy:
  - {id: sells, who: till, may: publish, type: shop.Sale}
  - {id: drives, who: van, may: [publish, subscribe], type: shop.Sale, attested: true}
  - {id: never, who: van, may: publish, type: shop.Sale, effect: forbid, where: "item = 'x'"}
"""


def test_publishers_that_could_do_without_an_identity_are_warned_of(files: Path, run: Run) -> None:
    (files / "shop.yaml").write_text(ATTESTED)
    for command in ("plan", "check"):
        said = words(run(command, str(files)))
        assert "`till` could publish without an identity statement" in said
        assert "`van` could publish" not in said
    assert "rule `drives` added: `van` may publish, subscribe `shop.Sale`, publishing only with an identity" in words(
        run("plan", str(files))
    )
    found = json.loads(run("check", str(files), "--json").output)
    assert [(one["concern"], one["names"]) for one in found["warnings"]] == [("unattested", ["till"])]


def test_a_directory_asks_for_identities_in_all_its_rules(files: Path, run: Run) -> None:
    (files / "shop.yaml").write_text(ATTESTED)
    assert run("apply", str(files), "--yes").exit_code == 0
    (files / "all.yaml").write_text("attested: true\n")
    said = words(run("plan", str(files)))
    assert "`till` - may no longer publish `shop.Sale`" in said
    assert "could publish without" not in said
    assert run("apply", str(files), "--yes").exit_code == 0
    with Ledger.open(Paths(files.parent / "data").ledger) as ledger:
        asked = {rule.id: rule.attested for rule in ledger.state().rules}
    assert asked == {"sells": True, "drives": True, "never": False}
    assert "nothing to change" in words(run("plan", str(files)))
    (files / "more.yaml").write_text("attested: false\n")
    assert "`attested` is given twice" in words(run("plan", str(files)))


def test_attributes_are_private_by_the_files(files: Path, run: Run) -> None:
    (files / "pay.yaml").write_text("private: [salary]\n")
    assert "the attribute `$salary` of principals is private" in words(run("plan", str(files)))
    assert run("apply", str(files), "--yes").exit_code == 0
    with Ledger.open(Paths(files.parent / "data").ledger) as ledger:
        assert ledger.state().private == {"salary"}
        assert ledger.state(1).private == {"salary"}
        assert ledger.state(0).private == frozenset()
    (files / "pay.yaml").unlink()
    assert "the attribute `$salary` of principals is no longer private" in words(run("plan", str(files)))


def test_warnings_past_the_most_that_are_shown_are_counted(files: Path, run: Run) -> None:
    groups = ", ".join(f"group{n}: [value{n}]" for n in range(60))
    change(files, "groups: {", f"groups: {{{groups}, ")
    said = run("check", str(files)).output
    assert said.count("is no principal") == 50
    assert "and 10 more; `--json` has them all" in said
