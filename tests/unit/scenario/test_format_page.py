"""The page that describes the format says what the code does."""

import re
from pathlib import Path

from headgate.model.rights import Action
from headgate.scenario.engines.play import run_decide
from headgate.scenario.format import authority, declared, file, role_steps, steps
from headgate.scenario.run import judge

PAGE = (Path(__file__).parents[3] / "docs" / "scenario-format.md").read_text("utf-8")

STEPS = (
    *("subscribe", "unsubscribe", "publish", "change", "type", "retire", "advertise", "unadvertise", "connect"),
    *("grant", "enter", "elect", "revoke", "reinstate", "hear", "advance", "crash", "assert"),
)


def test_the_example_passes(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "example.yaml").write_text(example)
    scenario = file.load(tmp_path / "example.yaml")
    assert judge(scenario, run_decide(scenario)) == []


def test_every_key_is_described() -> None:
    supported, _, later = PAGE.partition("## Not supported yet")
    for key in (*file._KEYS, *declared.RULE_KEYS, *STEPS):
        assert f"| `{key}` |" in supported
    keys = (authority.CERTIFICATE_KEYS, authority.IDENTITY_KEYS, authority.PROVIDER_KEYS, authority.ISSUING_KEYS)
    for key in (key for some in keys for key in some):
        assert f"`{key}`" in supported
    asked = (role_steps.GRANT_KEYS, role_steps.ENTER_KEYS, role_steps.ELECT_KEYS, role_steps.REVOKE_KEYS)
    for key in (key for some in (*asked, role_steps.REINSTATE_KEYS, role_steps.CLAIM_KEYS) for key in some):
        assert f"`{key}`" in supported or f"`{key}: " in supported
    for action in Action:
        assert f"`{action.value}`" in supported
    for key in (*steps._LATER, "signals"):
        assert f"`{key}`" in later
