"""What is in deploy/: its settings, commands and files exist, and what containers run is run here as processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from typer.testing import CliRunner

from harness.node import free_ports
from headgate.cli.main import COMMANDS, app
from headgate.cli.node.init import make_domain
from headgate.node import config
from headgate.node.config import Config, Files
from headgate.node.domain import utc_now
from headgate.node.processes import kill_session
from headgate.trust.keys import PrivateKey
from headgate.trust.tls import make_certificate

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "headgate"
ENTRYPOINT = DEPLOY / "entrypoint"
PAGE = ROOT / "docs" / "deploy.md"
DOMAIN = "/srv/headgate/domain"
TEXTS = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()] + [PAGE]
NO_SETTINGS = {"HEADGATE_DOMAIN", "HEADGATE_SECRETS"}
"""A variable of every command, and one of the entry point."""

HELM = shutil.which("helm", path=f"{ROOT / 'build' / 'tools'}:{os.environ['PATH']}")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def instructions() -> list[tuple[str, str]]:
    """Those of the Dockerfile, each in one line."""
    lines = (line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    whole = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in whole if line)]


# -- names ----------------------------------------------------------------------------------------------------


def settings() -> set[str]:
    return {config._variable(key) for key in config._KNOWN}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_variable_that_is_named_is_a_setting(path: Path) -> None:
    named = set(re.findall(r"\bHEADGATE_[A-Z][A-Z_]*[A-Z]\b", path.read_text("utf-8")))
    assert named <= settings() | NO_SETTINGS


def commands() -> list[list[str]]:
    """Whatever a container is told to run, without the program itself."""
    found = [
        json.loads(rest.partition("CMD ")[2] or rest) for name, rest in instructions() if name in {"CMD", "HEALTHCHECK"}
    ]
    for service in read(DEPLOY / "compose.yaml")["services"].values():
        if "postgres" not in service["image"]:
            found += [service["command"], service.get("healthcheck", {"test": ["CMD", "--help"]})["test"][1:]]
    for path in CHART.rglob("*.yaml"):
        for words in re.findall(r"(?:args|command): \[(.*?)\]", path.read_text()):
            found.append([word.strip() for word in words.split(",")])
    return [words[1:] if words[0] == "headgate" else words for words in found]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_that_is_run_exists_with_its_options(words: Sequence[str]) -> None:
    if words == ["--help"]:
        return
    name, *rest = words
    if name == "prepare":  # of the entry point, for `headgate init`
        name = "init"
    else:
        assert rest[0] == DOMAIN
    assert name in COMMANDS
    said = CliRunner(env={"COLUMNS": "200"}).invoke(app, [name, "--help"]).output
    assert [word for word in rest if word.startswith("--") and word not in said] == []


def test_commands_are_found() -> None:
    assert {words[0] for words in commands()} >= {"up", "health", "prepare", "--help"}


# -- the image ------------------------------------------------------------------------------------------------


def test_both_images_run_as_a_user_that_is_not_root() -> None:
    stages: dict[str, str] = {}
    for name, rest in instructions():
        if name == "FROM":
            source, _, stage = rest.partition(" AS ")
            stages[stage] = stages.get(source, "0")
        elif name == "USER":
            stages[stage] = rest
    assert stages["node"] == stages["client"] == "10001:10001"


def test_every_package_comes_with_its_hash() -> None:
    installs = [
        step for name, rest in instructions() if name == "RUN" for step in rest.split("&&") if " install " in step
    ]
    pip = [step for step in installs if "apt-get" not in step]
    assert len(pip) == 5
    assert [
        step for step in pip if "--require-hashes" not in step and not step.strip().endswith("--no-deps dist/*.whl")
    ] == []


def test_what_is_copied_into_it_is_let_in_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {
        word
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
        if not word.startswith("--")
    }
    assert copied == allowed
    assert all((ROOT / one).exists() for one in copied)


def test_its_steps_are_shell_and_find_uv_in_the_locked_file(tmp_path: Path) -> None:
    steps = [re.sub(r"--mount=\S+ +", "", rest) for name, rest in instructions() if name == "RUN"]
    for step in steps:
        subprocess.run(["sh", "-n", "-c", step], check=True)
    bootstrap = steps[0].split("&&")[0]
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    subprocess.run(["sh", "-ec", bootstrap], check=True, cwd=tmp_path)
    first, *hashes = (tmp_path / "bootstrap.txt").read_text().splitlines()
    assert first.startswith("uv==")
    assert hashes
    assert all(line.strip().startswith("--hash=sha256:") for line in hashes)


# -- what containers run --------------------------------------------------------------------------------------


def run(*words: str | Path, **variables: str | Path) -> subprocess.CompletedProcess[str]:
    """The entry point, with the `headgate` and `python` of this environment."""
    given = {name: str(value) for name, value in variables.items()}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["sh", str(ENTRYPOINT), *map(str, words)]
    environment = {**os.environ, "PATH": path, **given}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)


def secret(folder: Path, files: Mapping[str, bytes]) -> None:
    """Files as Kubernetes mounts them: links into a hidden directory, which the group can read."""
    (folder / "..2026").mkdir(parents=True)
    for name, content in files.items():
        (folder / "..2026" / name).write_bytes(content)
        (folder / "..2026" / name).chmod(0o440)
    (folder / "..data").symlink_to("..2026")
    for name in files:
        (folder / name).symlink_to(Path("..data") / name)


def certificate(folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    make_certificate(folder, ["gate.example.org"], utc_now(), 30)
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_domain_is_prepared_once_with_its_secrets(tmp_path: Path) -> None:
    old = make_domain(tmp_path / "old", None, (), utc_now()).files
    given = {one.name: one.read_bytes() for one in (old.broker_key, old.admin_key, old.position_key)}
    secrets, tls = tmp_path / "secrets", certificate(tmp_path / "first")
    secret(secrets / "keys", given)
    secret(secrets / "tls", tls)
    secret(secrets / "metrics", {"token": b"figures"})
    files = Files(tmp_path / "volume" / "domain")
    files.directory.parent.mkdir()
    places = {"HEADGATE_DOMAIN": files.directory, "HEADGATE_SECRETS": secrets, "TMPDIR": tmp_path}

    done = run("prepare", "--name", "shop", "--host", "gate", **places)
    assert done.returncode == 0, done.stderr
    assert Config.load(files.directory).domain.name == "shop"
    assert PrivateKey.load(files.broker_key).public == PrivateKey.load(old.broker_key).public
    assert files.tls_certificate.read_bytes() == tls["tls.crt"]
    assert files.metrics_token.read_text() == "figures"
    assert [mode(one) for one in (files.keys, files.tls_key, files.metrics_token)] == [0o700, 0o600, 0o600]
    assert not list(tmp_path.glob("tmp.*")), "no copy of a key is left"

    # Kubernetes opens files to the group of the volume; certificates are renewed.
    files.broker_key.chmod(0o660)
    shutil.rmtree(secrets / "tls")
    renewed = certificate(tmp_path / "second")
    secret(secrets / "tls", renewed)
    made = files.config.stat()
    done = run("prepare", "--name", "shop", **places)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert files.config.stat() == made
    assert files.tls_certificate.read_bytes() == renewed["tls.crt"]
    assert mode(files.broker_key) == 0o600

    shutil.rmtree(secrets / "keys")
    PrivateKey.generate().save(tmp_path / "other.pem")
    secret(secrets / "keys", {"broker.pem": (tmp_path / "other.pem").read_bytes()})
    done = run("prepare", "--name", "shop", **places)
    assert done.returncode == 2
    assert "`keys/broker.pem` of the domain is another" in done.stderr
    assert files.broker_key.read_bytes() == given["broker.pem"]


def test_a_domain_that_cannot_be_made_is_refused_and_leaves_no_key_behind(tmp_path: Path) -> None:
    secret(tmp_path / "secrets" / "keys", {"till.pem": b"?"})
    domain = tmp_path / "domain"
    done = run("prepare", HEADGATE_DOMAIN=domain, HEADGATE_SECRETS=tmp_path / "secrets", TMPDIR=tmp_path)
    assert done.returncode == 2
    assert "is no key of a domain" in done.stderr
    assert not domain.exists()
    assert not list(tmp_path.glob("tmp.*"))


def test_a_password_in_a_file_is_for_postgresql_alone(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a:b\\c\n")
    (tmp_path / "password").chmod(0o644)
    done = run("--help", PGPASSWORD_FILE=tmp_path / "password", PGPASSFILE=tmp_path / "pgpass")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pgpass").read_text() == "*:*:*:*:a\\:b\\\\c\n"
    assert mode(tmp_path / "pgpass") == 0o600


SPARK = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@shop-headgate-0:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-7",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "shop-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
    "SPARK_JAVA_OPT_1": '-Da="b c" $(false)',
    **{f"SPARK_JAVA_OPT_{n}": f"-Dn={n}" for n in range(2, 12)},
}


def executor(tmp_path: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    java.chmod(0o755)
    return run("executor", JAVA_HOME=tmp_path, **variables)


def test_an_executor_is_started_with_what_spark_says(tmp_path: Path) -> None:
    done = executor(tmp_path, SPARK)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said[:12] == [SPARK[f"SPARK_JAVA_OPT_{n}"] for n in range(12)]
    assert said[12:15] == ["-Xms1024m", "-Xmx1024m", "-cp"]
    conf, jars = said[15].split(":")
    assert conf == "/opt/spark/conf"
    assert list(Path(jars).parent.glob("spark-kubernetes_*.jar"))
    assert said[16].endswith(".KubernetesExecutorBackend")
    options = dict(zip(said[17::2], said[18::2], strict=True))
    assert options == {
        "--driver-url": SPARK["SPARK_DRIVER_URL"],
        "--executor-id": "1",
        "--cores": "2",
        "--app-id": "spark-7",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "shop-exec-1",
    }


def test_an_executor_without_a_driver_is_refused(tmp_path: Path) -> None:
    done = executor(tmp_path, {**SPARK, "SPARK_DRIVER_URL": ""})
    assert done.returncode != 0
    assert "SPARK_DRIVER_URL" in done.stderr


# -- compose --------------------------------------------------------------------------------------------------

COMPOSE = read(DEPLOY / "compose.yaml")


def test_compose_waits_for_what_is_needed_and_has_no_secret_in_it() -> None:
    services = COMPOSE["services"]
    assert {name: set(one.get("depends_on", ())) for name, one in services.items()} == {
        "database": set(),
        "init": {"database"},
        "node": {"database", "init"},
    }
    assert services["node"]["depends_on"]["init"]["condition"] == "service_completed_successfully"
    volumes = {mount.split(":")[0] for one in services.values() for mount in one["volumes"]}
    assert volumes == set(COMPOSE["volumes"])
    used = {name for one in services.values() for name in one["secrets"]}
    assert used == set(COMPOSE["secrets"])
    assert not [
        name
        for one in services.values()
        for name in one["environment"]
        if "PASS" in name and not name.endswith(("_FILE", "PASSFILE"))
    ]


@pytest.mark.parametrize("name", ["init", "node"])
def test_the_services_of_headgate_may_do_no_more_than_they_need(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["build"]["target"] == "node"
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert any("exec" in one.split(":")[1].split(",") for one in service["tmpfs"]), "Java loads libraries from there"


def test_the_settings_of_compose_are_taken(tmp_path: Path) -> None:
    node = COMPOSE["services"]["node"]
    files = make_domain(tmp_path / "shop", None, (), utc_now()).files
    loaded = Config.load(files.directory, node["environment"])
    assert loaded.gateway.host == "0.0.0.0"
    assert [f"127.0.0.1:{port}:{port}" for port in loaded.gateway.ports] == node["ports"]
    assert COMPOSE["services"]["init"]["command"][-1] == loaded.storage.database


def test_the_health_check_is_good_once_the_gateway_serves(tmp_path: Path) -> None:
    kind, *check = COMPOSE["services"]["node"]["healthcheck"]["test"]
    (in_image,) = (json.loads(rest.partition("CMD ")[2]) for name, rest in instructions() if name == "HEALTHCHECK")
    assert (kind, check) == ("CMD", in_image)
    domain, port = tmp_path / "domain", str(free_ports(1))
    places = {"HEADGATE_DOMAIN": domain, "HEADGATE_SECRETS": tmp_path / "none", "HEADGATE_GATEWAY_PORT": port}
    assert run("prepare", **places).returncode == 0
    words = [str(domain) if word == DOMAIN else word for word in check[1:]]
    done = run(*words, **places)
    assert done.returncode == 1, done
    command = [sys.executable, "-m", "headgate.gateway.serve", str(domain), "--name", "gateway-1", "--port", port]
    gateway = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert gateway.stdout is not None
        assert '"ready"' in gateway.stdout.readline()
        done = run(*words, **places)
        assert done.returncode == 0, done
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(60) == 0
    finally:
        kill_session(gateway.pid)
        gateway.communicate(timeout=30)


# -- the chart ------------------------------------------------------------------------------------------------

VALUES = read(CHART / "values.yaml")
CASES = [CHART / "values.yaml", *sorted((CHART / "ci").glob("*.yaml"))]


def is_taken(values: object) -> bool:
    return bool(jsonschema_rs.validator_for(read(CHART / "values.schema.json")).is_valid(values))


def merged(values: Any, given: Any) -> Any:
    """Values over the chart's own, as Helm puts them."""
    if not isinstance(values, dict) or not isinstance(given, dict):
        return given
    return values | {name: merged(values.get(name), value) for name, value in given.items()}


def with_value(name: str, value: object) -> Any:
    given = value
    for part in reversed(name.split(".")):
        given = {part: given}
    return merged(VALUES, given)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_values_are_those_of_the_schema(path: Path) -> None:
    assert is_taken(merged(VALUES, read(path)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gatewys", 2),
        ("gateways", 0),
        ("gateways", "two"),
        ("image.tga", "1"),
        ("settings.gateway", {"port": 9443}),
        ("settings.pipeline", {"cores": 4}),
        ("settings.storage", {"database": ""}),
        ("settings.limits", {"connections": [1]}),
        ("database.address", "mysql://db"),
        ("database.password", "secret"),
        ("pipeline.memory", "2Gi"),
        ("pipeline.kubernetes.settings", {"executor.cores": 1}),
        ("metrics.serviceMonitor.enabled", "yes"),
    ],
)
def test_values_that_mean_nothing_are_refused(name: str, value: object) -> None:
    assert not is_taken(with_value(name, value))


def test_settings_that_the_chart_has_no_value_for_can_be_given() -> None:
    assert is_taken(with_value("settings.gateway", {"session": "5m"}))
    assert is_taken(with_value("settings.retention", {"log_size": "20GB"}))


def rows() -> list[str]:
    """The rows of the table: each value that has a comment, which is the line before it."""
    found, parents = [], list[tuple[int, str]]()
    comment = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        text = line.strip()
        if text.startswith("# -- "):
            comment = text.removeprefix("# -- ")
        elif re.match(r"[A-Za-z]+:", text):
            indent, name = len(line) - len(text), text.partition(":")[0]
            parents = [*(parent for parent in parents if parent[0] < indent), (indent, name)]
            value: Any = VALUES
            for _, part in parents:
                value = value[part]
            if comment:
                shown = "none" if value in ("", {}, []) else f"`{json.dumps(value)}`"
                found.append(f"| `{'.'.join(part for _, part in parents)}` | {shown} | {comment} |")
            else:
                assert isinstance(value, dict), f"nothing is said of {name}"
            comment = ""
    return found


def test_the_page_has_every_value_with_its_default() -> None:
    table = re.findall(r"^\| `[a-z].*\|$", PAGE.read_text().split("### Values")[1], re.MULTILINE)
    assert table == rows()


def test_every_value_is_used_and_every_one_that_is_used_exists() -> None:
    text = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    for name in VALUES:
        assert f".Values.{name}" in text
    for path in re.findall(r"\.Values\.([A-Za-z.]+)", text):
        inner: Any = VALUES
        for part in path.split("."):
            assert part in inner, path
            inner = inner[part]


def rendered(path: Path, *more: str) -> list[dict[str, Any]]:
    assert HELM is not None
    command = [
        HELM,
        "template",
        "shop",
        str(CHART),
        "--values",
        str(path),
        "--kube-version",
        "1.37.0",
        "--namespace",
        "prod",
    ]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


needs_helm = pytest.mark.skipif(HELM is None, reason="there is no helm; tools/check-chart builds one")


def one(found: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    (only,) = (each for each in found if each["kind"] == kind)
    return only


@needs_helm
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_what_is_rendered_is_safe_and_its_settings_are_taken(path: Path, tmp_path: Path) -> None:
    found = rendered(path)
    pod = one(found, "StatefulSet")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["enableServiceLinks"] is False
    names = {volume["name"] for volume in pod["volumes"]}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= names
    for container in pod["containers"]:
        environment = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        assert {name for name in environment if name.startswith("HEADGATE_")} <= settings()
        files = make_domain(tmp_path / container["name"], None, (), utc_now()).files
        loaded = Config.load(files.directory, environment)
        assert loaded.gateway.count == len(
            [port for port in pod["containers"][0]["ports"] if "gateway" in port["name"]]
        )


@needs_helm
def test_without_values_the_chart_needs_nothing_of_kubernetes_and_no_secret() -> None:
    found = rendered(CHART / "values.yaml")
    kinds = ["NetworkPolicy", "PersistentVolumeClaim", "Service", "Service", "ServiceAccount", "StatefulSet"]
    assert sorted(each["kind"] for each in found) == kinds
    pod = one(found, "StatefulSet")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert [volume for volume in pod["volumes"] if "secret" in volume] == []


@needs_helm
def test_a_monitor_without_a_token_to_show_is_refused() -> None:
    assert HELM is not None
    command = [
        HELM,
        "template",
        "shop",
        str(CHART),
        "--kube-version",
        "1.37.0",
        "--set",
        "metrics.serviceMonitor.enabled=true",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "needs `metrics.tokenSecret`" in done.stderr
