"""Settings: defaults, file, environment and flags, and clear refusals."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model.errors import BadConfig, NotFound
from headgate.model.limits import MAX_CONFIG_BYTES, SESSION_SECONDS
from headgate.node.config import ISSUERS, Config, Files, GatewaySettings, duration, example, is_loopback, size
from headgate.node.spark_settings import OWNED


def load(directory: Path, text: str = "", environ: dict[str, str] | None = None, **flags: str) -> Config:
    (directory / "headgate.toml").write_text(text)
    return Config.load(directory, environ or {}, {key.replace("__", "."): value for key, value in flags.items()})


def refusal(directory: Path, text: str = "", environ: dict[str, str] | None = None, **flags: str) -> BadConfig:
    with pytest.raises(BadConfig) as refused:
        load(directory, text, environ, **flags)
    assert refused.value.code == "bad-config"
    assert "\n" not in str(refused.value)
    return refused.value


def keys() -> list[str]:
    sections = [s.name for s in dataclasses.fields(Config) if s.name != ISSUERS]
    return [f"{name}.{one.name}" for name in sections for one in dataclasses.fields(section(name))]


def section(name: str) -> Any:
    return getattr(Config(), name)


# -- defaults and the example ---------------------------------------------------------------------------------


def test_the_defaults() -> None:
    config = Config()
    assert (config.domain.name, config.gateway.host, config.gateway.port) == ("example", "127.0.0.1", 8443)
    assert (config.gateway.count, config.gateway.tls, config.gateway.lease) == (1, True, 5.0)
    assert config.gateway.session == SESSION_SECONDS
    assert (config.publish.window, config.publish.max_body, config.publish.max_events) == (600.0, 16 * 2**20, 10_000)
    assert config.publish.advertise
    assert dataclasses.astuple(config.subscribe) == (1000, 30.0, 3600.0)
    assert dataclasses.astuple(config.limits) == (10_000, 100, 1_000, 100, 600, 16 * 2**20, 1_000, 60.0)
    week, gigabytes = 7 * 86400.0, 10 * 2**30
    assert dataclasses.astuple(config.retention) == (week, gigabytes, week, gigabytes, 30 * 86400.0)
    assert dataclasses.astuple(config.pipeline) == (True, "", "2g", 2, "", "", 10.0, ())
    assert config.pipeline.spark_master == "local[2]"
    assert dataclasses.astuple(config.log) == ("info", "json")
    assert dataclasses.astuple(config.authority) == (None, 15.0, 3600.0, 1_000, 100, 100_000)
    assert (config.gateway.proxies, config.issuers) == ((), ())


def test_the_example_is_the_defaults_and_says_what_each_is_for(tmp_path: Path) -> None:
    text = example()
    assert load(tmp_path, text) == load(tmp_path, "") == Config()
    assert [f"{s}.{key}" for s, settings in tomllib.loads(text).items() for key in settings] == keys()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if "=" in line:
            assert lines[number - 1].startswith("# ")
    assert max(map(len, lines)) <= 120


def test_the_example_can_be_given_values_which_are_checked(tmp_path: Path) -> None:
    given_ = {"domain.name": "shop-1.eu", "gateway.port": 9000, "gateway.tls": False}
    config = load(tmp_path, example(given_))
    assert (config.domain.name, config.gateway.port, config.gateway.tls) == ("shop-1.eu", 9000, False)
    for name in ("", "a b", 'a"b', "a\nb", "x" * 65, "-a"):
        with pytest.raises(BadConfig, match=r"domain\.name"):
            example({"domain.name": name})


# -- the order ------------------------------------------------------------------------------------------------


def test_the_environment_goes_before_the_file_and_flags_before_both(tmp_path: Path) -> None:
    file = "[gateway]\nport = 1\ncount = 1\nlease = '1s'\n"
    environ = {"HEADGATE_GATEWAY_PORT": "2", "HEADGATE_GATEWAY_COUNT": "2", "PATH": "/bin"}
    found = load(tmp_path, file, environ, gateway__port="3").gateway
    assert (found.port, found.count, found.lease, found.host) == (3, 2, 1.0, "127.0.0.1")


@given(
    file=st.none() | st.integers(1, 60_000),
    environ=st.none() | st.integers(1, 60_000),
    flag=st.none() | st.integers(1, 60_000),
)
def test_the_last_word_counts(
    tmp_path_factory: pytest.TempPathFactory, file: int | None, environ: int | None, flag: int | None
) -> None:
    directory = tmp_path_factory.mktemp("config")
    text = "" if file is None else f"[gateway]\nport = {file}"
    variables = {} if environ is None else {"HEADGATE_GATEWAY_PORT": str(environ)}
    flags = {} if flag is None else {"gateway__port": str(flag)}
    expected = next((port for port in (flag, environ, file) if port is not None), 8443)
    assert load(directory, text, variables, **flags).gateway.port == expected


@pytest.mark.parametrize("key", keys())
def test_every_setting_can_be_set_in_every_way(tmp_path: Path, key: str) -> None:
    name, _, setting = key.partition(".")
    other = {
        "domain.name": "shop",
        "gateway.host": "::1",
        "gateway.tls": "false",
        "gateway.proxies": "10.0.0.7",
        "publish.advertise": "false",
        "authority.freshness": "3m",
        "limits.refused_per_minute": "3MB",
        "pipeline.memory": "512m",
        "telemetry.otlp": "http://localhost:4318",
        "storage.database": "postgresql://shop@db.example/shop",
        "pipeline.run": "false",
        "pipeline.master": "spark://127.0.0.1:7077",
        "pipeline.checkpoint": "hdfs://name/headgate",
        "pipeline.spark": "spark.executor.memory=1g",
        "log.level": "debug",
        "times.promise": "heartbeats",
        "log.format": "text",
    }
    was = getattr(section(name), setting)
    text = other.get(key) or ("3m" if isinstance(was, float) else "3MB" if "size" in key or "body" in key else "3")
    plain = text if type(was) in (bool, int) and text[-1] != "B" else f'"{text}"'
    made = [
        load(tmp_path, f"[{name}]\n{setting} = {plain}"),
        load(tmp_path, f"{key} = {plain}"),
        load(tmp_path, "", {f"HEADGATE_{name.upper()}_{setting.upper()}": text}),
        load(tmp_path, "", **{key.replace(".", "__"): text}),
    ]
    assert len(set(made)) == 1
    assert getattr(getattr(made[0], name), setting) != was


# -- Spark ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[4]", "local[*]", "local[2,3]", "yarn", "spark://h:7077", "spark://a:7077,b-1.example:7078"),
        *("k8s://https://10.0.0.1:6443", "k8s://kube.example:443", "spark://[::1]:7077"),
    ],
)
def test_any_master_that_a_driver_can_have(tmp_path: Path, master: str) -> None:
    assert load(tmp_path, f"[pipeline]\nmaster = '{master}'").pipeline.spark_master == master


@pytest.mark.parametrize(
    "master",
    [
        *("local[0]", "local[]", "local[2", "local[2]x", "spark://", "spark://h", "spark:h:1", "spark://h:7077/x"),
        *(
            "spark://a:1,",
            "k8s://",
            "mesos://h:1",
            "yarn-client",
            "sc://h:15002",
            "local-cluster[2,1,512]",
            "SPARK://h:1",
        ),
    ],
)
def test_another_master_is_refused_with_those_there_are(tmp_path: Path, master: str) -> None:
    error = refusal(tmp_path, f"[pipeline]\ncores = 1\nmaster = '{master}'")
    assert error.message == f"`pipeline.master` cannot be `{master}`"
    assert error.place == f"{tmp_path}/headgate.toml, line 3"
    assert "spark://host:7077" in str(error.remedy)


def test_settings_of_spark_are_taken_as_they_are_written(tmp_path: Path) -> None:
    table = """
    [pipeline.spark]
    "spark.executor.memory" = "1g"
    spark.executor.cores = 2
    spark.dynamicAllocation.enabled = false
    'spark.hadoop.fs.s3a.secret.key' = "a=b c"
    """
    found = load(tmp_path, table).pipeline.spark
    assert dict(found) == {
        "spark.executor.memory": "1g",
        "spark.executor.cores": "2",
        "spark.dynamicAllocation.enabled": "false",
        "spark.hadoop.fs.s3a.secret.key": "a=b c",
    }
    lines = "\n".join(f"{name}={value}" for name, value in reversed(found))
    assert load(tmp_path, "", {"HEADGATE_PIPELINE_SPARK": lines}).pipeline.spark == found


@pytest.mark.parametrize("name", list(OWNED))
def test_a_setting_that_is_headgates_is_refused_with_its_line_and_what_to_do(tmp_path: Path, name: str) -> None:
    text = f'[log]\nlevel = "info"\n\n[pipeline.spark]\n"spark.executor.cores" = 1\n"{name}" = "x"\n'
    error = refusal(tmp_path, text)
    assert error.message == f"`{name}` cannot be set in `pipeline.spark`"
    assert (error.place, error.remedy) == (f"{tmp_path}/headgate.toml, line 6", OWNED[name])
    assert refusal(tmp_path, "", {"HEADGATE_PIPELINE_SPARK": f"{name}=x"}).place == "HEADGATE_PIPELINE_SPARK"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("executor.memory = '1g'", "`executor.memory` is no setting of Spark"),
        ("'spark.a' = ['x']", "`spark.a` has a value"),
        ("'spark.a' = 'x\\u0007'", None),
        ('"spark.a" = "line\\nline"', "`spark.a` has a value"),
        ("'spark.a b' = 1", "`spark.a b` is no setting"),
    ],
)
def test_what_is_no_setting_of_spark_is_refused(tmp_path: Path, line: str, words: str | None) -> None:
    text = f"[pipeline.spark]\n{line}"
    if words is None:  # in single quotes it is plain text
        assert load(tmp_path, text).pipeline.spark
    else:
        error = refusal(tmp_path, text)
        assert words in error.message
        assert error.place == f"{tmp_path}/headgate.toml, line 2"


@pytest.mark.parametrize("place", ["relative/path", "s3a", "a b", "hdfs:", "C:/x", "/with space"])
def test_a_checkpoint_that_is_no_place_is_refused(tmp_path: Path, place: str) -> None:
    error = refusal(tmp_path, f"[pipeline]\ncheckpoint = '{place}'")
    assert error.message == f"`pipeline.checkpoint` cannot be `{place}`"
    for good in ("/var/lib/x", "file:/x", "file:///x", "hdfs://n:8020/x", "s3a://b/x", "abfss://c@a.example/x"):
        assert load(tmp_path, f"[pipeline]\ncheckpoint = '{good}'").pipeline.checkpoint == good


# -- refusals -------------------------------------------------------------------------------------------------


def test_an_unknown_setting_is_named_with_its_line_and_the_nearest(tmp_path: Path) -> None:
    error = refusal(tmp_path, "# mine\n[gateway]\nhost = 'localhost'\nprot = 1\n")
    assert error.message == "there is no setting `gateway.prot`"
    assert error.place == f"{tmp_path}/headgate.toml, line 4"
    assert error.remedy == "`gateway.port`, which is the nearest"
    assert refusal(tmp_path, "subscribe.credits = 1").place == f"{tmp_path}/headgate.toml, line 1"


def test_an_unknown_section_variable_or_flag_is_named_with_the_nearest(tmp_path: Path) -> None:
    error = refusal(tmp_path, "\n\n[gatewy]\nport = 1")
    assert (error.message, error.remedy) == ("there is no section `gatewy`", "`gateway`, which is the nearest")
    assert error.place == f"{tmp_path}/headgate.toml, line 3"
    error = refusal(tmp_path, environ={"HEADGATE_PUBLISH_WINDOWS": "1m"})
    assert error.message == "there is no variable `HEADGATE_PUBLISH_WINDOWS`"
    assert error.remedy == "`HEADGATE_PUBLISH_WINDOW`, which is the nearest"
    error = refusal(tmp_path, gateway__ports="1")
    assert (error.place, error.remedy) == ("the command line", "`gateway.port`, which is the nearest")


def test_variables_of_other_purposes_are_left_alone(tmp_path: Path) -> None:
    assert load(tmp_path, environ={"HEADGATE_DOMAIN": "x", "HEADGATE_SEEDS": "1", "GATEWAY_PORT": "1"}) == Config()


@pytest.mark.parametrize(
    "line",
    [
        "gateway.port = '8443'",
        "gateway.port = 8443.0",
        "gateway.port = true",
        "gateway.port = 0",
        "gateway.port = 65536",
        "gateway.port = -1",
        "gateway.count = 65",
        "gateway.tls = 1",
        "gateway.tls = 'true'",
        "gateway.host = ''",
        "gateway.host = 'a b'",
        "gateway.host = 1",
        "gateway.session = 900",
        "gateway.session = '900'",
        "gateway.session = '15 m'",
        "gateway.session = '-15m'",
        "gateway.session = '0s'",
        "gateway.session = '2d'",
        "gateway.session = '1e3s'",
        "publish.max_body = 16",
        "publish.max_body = '16mb'",
        "publish.max_body = '0B'",
        "publish.max_body = '2GB'",
        "publish.max_events = 0",
        "retention.log_age = 2026-01-01",
        "pipeline.memory = '2gb'",
        "pipeline.memory = '0g'",
        "log.level = 'loud'",
        "log.format = ['json']",
        "domain.name = {a = 1}",
    ],
)
def test_a_value_of_the_wrong_type_or_out_of_range_is_named(tmp_path: Path, line: str) -> None:
    error = refusal(tmp_path, f"\n{line}\n")
    key, _, _ = line.partition(" ")
    assert f"`{key}`" in error.message
    assert error.place == f"{tmp_path}/headgate.toml, line 2"
    assert error.remedy


@pytest.mark.parametrize(
    ("key", "text", "wanted"),
    [
        ("gateway.count", "65", "a whole number from 1 to 64"),
        ("gateway.tls", "yes", "true or false"),
        ("gateway.session", "2d", "something from 1s to 1d"),
        ("gateway.session", "long", 'a duration such as "90s", "10m", "1h" or "7d"'),
        ("publish.max_body", "1B", "something from 1KB to 1GB"),
        ("publish.max_body", "1", 'a size such as "512KB", "16MB" or "10GB"'),
        ("log.level", "loud", "one of debug, info, warning, error"),
        ("domain.name", "a\n", "up to 64 letters, digits, dots, dashes and underscores"),
    ],
)
def test_what_is_wanted_is_said(tmp_path: Path, key: str, text: str, wanted: str) -> None:
    assert refusal(tmp_path, **{key: text}).remedy == wanted


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HEADGATE_GATEWAY_PORT", "x"),
        ("HEADGATE_GATEWAY_PORT", ""),
        ("HEADGATE_GATEWAY_PORT", "9" * 5000),
        ("HEADGATE_GATEWAY_PORT", "٣"),
        ("HEADGATE_GATEWAY_TLS", "yes"),
        ("HEADGATE_GATEWAY_TLS", "True"),
    ],
)
def test_a_variable_with_a_wrong_value_is_named(tmp_path: Path, name: str, text: str) -> None:
    assert refusal(tmp_path, environ={name: text}).place == name


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.7", "gate.example.org", "127.0.0.1.example.org", "localhost.x"]
)
def test_plaintext_is_refused_unless_it_stays_on_this_machine(tmp_path: Path, host: str) -> None:
    error = refusal(tmp_path, f"[gateway]\nhost = '{host}'\ntls = false")
    assert "gateway.tls" in error.message
    assert error.place == f"{tmp_path}/headgate.toml, line 3"
    assert load(tmp_path, f"gateway.host = '{host}'").gateway.tls
    with pytest.raises(BadConfig):
        GatewaySettings(host=host, tls=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_plaintext_on_this_machine_is_allowed(tmp_path: Path, host: str) -> None:
    assert is_loopback(host)
    assert not load(tmp_path, environ={"HEADGATE_GATEWAY_TLS": "false"}, gateway__host=host).gateway.tls


def test_the_last_gateway_needs_a_port_too(tmp_path: Path) -> None:
    assert load(tmp_path, "gateway.port = 65535").gateway.port == 65535
    error = refusal(tmp_path, "gateway.port = 65535", gateway__count="2")
    assert "gateway.port" in error.message


@pytest.mark.parametrize("text", ["[gateway", "[gateway]\nport 1", "a = 1\na = 2", "[[[[", "\x00", "gateway = 1"])
def test_what_is_not_such_a_file_is_refused(tmp_path: Path, text: str) -> None:
    assert str(tmp_path / "headgate.toml") in (refusal(tmp_path, text).place or "")


def test_a_syntax_error_tells_its_line(tmp_path: Path) -> None:
    assert "line 2" in refusal(tmp_path, "[gateway]\nport 1").message


def test_a_file_that_is_too_long_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not a domain"):
        Config.load(tmp_path)
    path = tmp_path / "headgate.toml"
    for content in (b"\xff", b"#" * (MAX_CONFIG_BYTES + 1)):
        path.write_bytes(content)
        with pytest.raises(BadConfig):
            Config.load(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(BadConfig):
        Config.load(tmp_path)


# -- units and files ------------------------------------------------------------------------------------------


@given(st.integers(0, 10**9 - 1))
def test_units(count: int) -> None:
    assert duration(f"{count}s") == count
    assert duration(f"{count}m") == count * 60
    assert duration(f"{count}h") == count * 3600
    assert duration(f"{count}d") == count * 86400
    assert duration(f"{count}ms") == pytest.approx(count / 1000)
    assert [size(f"{count}{u}") for u in ("B", "KB", "MB", "GB", "TB")] == [count * 1024**n for n in range(5)]


def test_files(tmp_path: Path) -> None:
    files = Files(tmp_path)
    found = (
        *(files.config, files.broker_key, files.admin_key, files.position_key),
        *(files.tls_certificate, files.tls_key, files.data, files.policy),
    )
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        *("headgate.toml", "keys/broker.pem", "keys/administrator.pem", "keys/positions.key"),
        *("tls/tls.crt", "tls/tls.key", "data", "policy"),
    ]


# -- issuers --------------------------------------------------------------------------------------------------

KEY = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
OTHER = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp"


def issuer(**settings: str) -> str:
    given_ = {"key": KEY, "url": "https://met.example:8443", **settings}
    return "\n".join(["[[issuers]]", *(f'{name} = "{value}"' for name, value in given_.items()), ""])


def test_issuers_are_tables_with_a_name_each(tmp_path: Path) -> None:
    config = load(tmp_path, issuer(name="met", ca="met.crt") + issuer(key=OTHER, url="http://127.0.0.1:8000"))
    assert [(one.name, one.key, one.ca) for one in config.issuers] == [
        ("met", KEY, "met.crt"),
        ("issuer-2", OTHER, None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        'issuers = "met"',
        "[issuers]\nkey = 1",
        issuer(key="met"),
        issuer(url="http://met.example"),
        issuer(url="https://met.example/v1"),
        issuer(url="https://me@met.example"),
        issuer(url="met.example"),
        issuer(name="a b"),
        issuer(port="1"),
        issuer() + issuer(name="again"),
        issuer(name="met") + issuer(key=OTHER, name="met"),
        f'[[issuers]]\nkey = "{KEY}"',
        f'[[issuers]]\nkey = "{KEY}"\nurl = 3',
    ],
)
def test_an_issuer_that_cannot_be_followed_safely_is_refused(tmp_path: Path, text: str) -> None:
    assert "headgate.toml" in str(refusal(tmp_path, text))


def test_silence_and_proxies(tmp_path: Path) -> None:
    config = load(tmp_path, '[authority]\nfreshness = "90s"\n[gateway]\nproxies = "10.0.0.7, 10.1.0.0/16, ::1"')
    assert config.authority.freshness == 90
    assert [str(one) for one in config.gateway.proxies] == ["10.0.0.7/32", "10.1.0.0/16", "::1/128"]
    for text in ('freshness = "0s"', 'freshness = "never"', "freshness = 3"):
        refusal(tmp_path, f"[authority]\n{text}")
    for text in ('proxies = "gate.example"', "proxies = 3", 'proxies = "10.0.0.1/8"'):
        refusal(tmp_path, f"[gateway]\n{text}")
