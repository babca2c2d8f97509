"""The page that describes the format says what the code does."""

import re
from pathlib import Path

from headgate.model.rights import Action
from headgate.scenario.engines.play import run_decide
from headgate.scenario.format import authority, declared, file, steps
from headgate.scenario.run import judge

PAGE = (Path(__file__).parents[3] / "docs" / "scenario-format.md").read_text("utf-8")


def test_the_example_passes(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "example.yaml").write_text(example)
    scenario = file.load(tmp_path / "example.yaml")
    assert judge(scenario, run_decide(scenario)) == []


def test_every_key_is_described() -> None:
    supported = PAGE
    rows = {
        key for row in re.findall(r"^\| (`.*?`) \|", supported, re.MULTILINE) for key in row.strip("`").split("`, `")
    }
    assert rows >= {*file._KEYS, *declared.RULE_KEYS, *steps.STEPS}
    keys = (authority.CERTIFICATE_KEYS, authority.IDENTITY_KEYS, authority.PROVIDER_KEYS, authority.ISSUING_KEYS)
    for key in (key for some in keys for key in some):
        assert f"`{key}`" in supported
    for key in (key for keys in steps.STEPS.values() for key in keys):
        assert f"`{key}`" in supported or f"`{key}: " in supported
    for action in Action:
        assert f"`{action.value}`" in supported
