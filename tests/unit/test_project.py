"""The project's own promises: a clear word about Java, no registry's name in any file, and every test is run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def fake_java(folder: Path, says: str) -> None:
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)


def check_java(path: Path, java_home: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {"PATH": str(path)}
    if java_home is not None:
        env["JAVA_HOME"] = str(java_home)
    return subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "check-java")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line a refusal says."""
    assert done.returncode != 0
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("headgate: ")
    return line


def test_missing_java_is_named_with_the_remedy(tmp_path: Path) -> None:
    line = refusal(check_java(tmp_path))
    assert "Java is missing" in line
    assert "apt-get install openjdk-17-jre-headless" in line


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "11.0.22" 2024-01-16', "11.0.22"),
        ('openjdk version "1.8.0_392"', "1.8.0_392"),
    ],
)
def test_old_java_is_named_with_the_remedy(tmp_path: Path, says: str, version: str) -> None:
    fake_java(tmp_path / "bin", says)
    line = refusal(check_java(tmp_path / "bin"))
    assert f"is Java {version}, too old" in line
    assert "apt-get install openjdk-17-jre-headless" in line


@pytest.mark.parametrize(
    "says",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'openjdk version "21" 2023-09-19',
        'openjdk version "26-ea" 2026-03-17',
        'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.15" 2025-04-15',
    ],
)
def test_good_java_passes_in_silence(tmp_path: Path, says: str) -> None:
    fake_java(tmp_path / "bin", says)
    done = check_java(tmp_path / "bin")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_java_that_does_not_run_is_refused(tmp_path: Path) -> None:
    fake_java(tmp_path / "bin", "Unable to locate a Java Runtime.")
    assert "does not run" in refusal(check_java(tmp_path / "bin"))


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "old" / "bin", 'openjdk version "11.0.22" 2024-01-16')
    fake_java(tmp_path / "new" / "bin", 'openjdk version "17.0.15" 2025-04-15')
    assert check_java(tmp_path / "old" / "bin", java_home=tmp_path / "new").returncode == 0
    assert "Java 11.0.22" in refusal(check_java(tmp_path / "new" / "bin", java_home=tmp_path / "old"))


def test_java_home_without_java_is_refused(tmp_path: Path) -> None:
    fake_java(tmp_path / "bin", 'openjdk version "17.0.15" 2025-04-15')
    line = refusal(check_java(tmp_path / "bin", java_home=tmp_path / "nowhere"))
    assert f"JAVA_HOME is `{tmp_path / 'nowhere'}`" in line


def test_no_file_names_a_package_registry() -> None:
    done = subprocess.run(
        [str(ROOT / "tools" / "check-registries")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tests_of_two_kinds(tmp_path: Path) -> Path:
    """A project with `tools/run-tests` and tests of its own."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "run-tests", tmp_path / "tools")
    for name in (
        "node/test_a.py",
        "unit/one/test_b.py",
        "unit/test_c.py",
        "test_d.py",
        "spark/test_e.py",
        "agreement/test_f.py",
        "faults/test_g.py",
        "faults/test_h.py",
    ):
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def test_one(): pass\ndef test_two(): pass\n")
    return tmp_path


def _tested(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(project / "tools" / "run-tests"), *arguments]
    plain = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=plain)


def test_every_test_runs_and_all_are_counted_in_the_last_line(tests_of_two_kinds: Path) -> None:
    """What runs beside them counts as one of them; what is compiled is kept, and beside no module."""
    file = tests_of_two_kinds / "tests" / "unit" / "test_c.py"
    kept = "assert sys.pycache_prefix and not sys.dont_write_bytecode"
    file.write_text(f"import sys\ndef test_one(): pass\ndef test_two(): {kept}\n")
    done = _tested(tests_of_two_kinds, "--with", "echo all is well", "-k", "test_two")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "all is well  " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("=== 8 passed, 8 deselected in ")
    assert done.stdout.count("passed") == 1, "nobody adds them up twice"
    assert not list(tests_of_two_kinds.glob("tests/**/__pycache__"))


def test_one_part_that_fails_fails_all_and_is_shown(tests_of_two_kinds: Path) -> None:
    unit = tests_of_two_kinds / "tests" / "unit"
    (unit / "one" / "test_b.py").write_text("def test_one(): assert 1 == 2\n")
    (unit / "test_c.py").write_text("def (")
    done = _tested(tests_of_two_kinds, "--with", "sh -c 'echo all is lost; exit 3'")
    assert done.returncode == 1
    assert "assert 1 == 2" in done.stdout
    assert "all is lost\n" in done.stdout
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ") and "::" not in line]
    assert sorted(failed) == [
        "FAILED sh -c echo all is lost; exit 3",
        "FAILED tests/unit/one",
        "FAILED tests/unit/test_c.py",
    ]
    for count in ("12 passed", "1 failed", "1 error"):
        assert count in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("failing", ["a test", "what runs beside them"])
def test_one_failure_is_enough(tmp_path: Path, failing: str) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "run-tests", tmp_path / "tools")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    says = "assert False" if failing == "a test" else "pass"
    (tmp_path / "tests" / "unit" / "test_c.py").write_text(f"def test_one(): {says}\n")
    assert _tested(tmp_path, "--with", "true" if failing == "a test" else "false").returncode == 1
