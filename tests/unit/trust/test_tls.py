"""TLS: a certificate of one's own, and contexts that trust it and nothing else."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from headgate.model.errors import BadDefinition, BadKey, NotFound
from headgate.model.limits import MAX_CERTIFICATE_DAYS, MAX_CERTIFICATE_FILE_BYTES, MAX_HOSTS
from headgate.trust.tls import certificate_of, client_context, expires, fingerprint, make_certificate, server_context

NOW = datetime.now(UTC).replace(microsecond=0)


def made(directory: Path, *hosts: str, now: datetime = NOW, days: int = 30, machine: str = "box") -> Path:
    directory.mkdir(exist_ok=True)
    make_certificate(directory, hosts, now, days, machine=machine)
    return directory


def names(directory: Path) -> tuple[list[str], list[str]]:
    certificate = x509.load_pem_x509_certificate((directory / "tls.crt").read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.get_values_for_type(x509.DNSName), [str(a) for a in found.get_values_for_type(x509.IPAddress)]


def talk(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> tuple[str | None, bytes | None]:
    """One TLS connection over a pair of sockets: its version, and the certificate that the client saw."""
    here, there = socket.socketpair()
    here.settimeout(10)
    there.settimeout(10)

    def serve() -> None:
        try:
            with server.wrap_socket(there, server_side=True) as connection:
                connection.recv(1)
        except OSError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as connection:
            seen = connection.version(), connection.getpeercert(binary_form=True)
            connection.send(b".")
            return seen
    finally:
        here.close()
        thread.join(10)


def server_of(directory: Path) -> ssl.SSLContext:
    return server_context(directory / "tls.crt", directory / "tls.key")


def client_of(directory: Path) -> ssl.SSLContext:
    return client_context((directory / "tls.crt").read_bytes())


def test_a_certificate_is_for_this_machine_and_the_given_hosts(tmp_path: Path) -> None:
    made(tmp_path, "Gate.Example.org", "10.0.0.7", "localhost", "2001:db8::1")
    assert names(tmp_path) == (
        ["localhost", "box", "gate.example.org"],
        ["127.0.0.1", "::1", "10.0.0.7", "2001:db8::1"],
    )
    assert stat.S_IMODE((tmp_path / "tls.key").stat().st_mode) == 0o600
    assert expires(tmp_path / "tls.crt") == NOW + timedelta(days=30)


def test_a_machine_name_that_no_certificate_can_carry_is_left_out(tmp_path: Path) -> None:
    made(tmp_path, machine="my_box é")
    assert names(tmp_path)[0] == ["localhost"]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "box", "gate.example.org"])
def test_the_pinned_certificate_is_trusted_under_each_of_its_names(tmp_path: Path, name: str) -> None:
    made(tmp_path, "gate.example.org")
    client = client_of(tmp_path)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    version, seen = talk(server_of(tmp_path), client, name)
    assert version == "TLSv1.3"
    assert seen is not None
    assert fingerprint(seen) == fingerprint(certificate_of(tmp_path / "tls.crt"))


def test_another_name_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        talk(server_of(tmp_path), client_of(tmp_path), "gate.example.org")


def test_another_certificate_is_refused_even_for_the_same_names(tmp_path: Path) -> None:
    ours, theirs = made(tmp_path / "ours"), made(tmp_path / "theirs")
    with pytest.raises(ssl.SSLCertVerificationError):
        talk(server_of(theirs), client_of(ours), "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        talk(server_of(ours), client_context(), "localhost")


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    made(tmp_path, now=NOW - timedelta(days=60))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        talk(server_of(tmp_path), client_of(tmp_path), "localhost")


def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    made(tmp_path)
    client = client_of(tmp_path)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert talk(server_of(tmp_path), client, "localhost")[0] == "TLSv1.2"
    assert server_of(tmp_path).minimum_version == client_of(tmp_path).minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("host", ["", "a b", "-a", "a_b", "*.example.org", "é.example.org", "a..b", "x" * 64, "a\n"])
def test_what_is_no_host_is_refused_and_nothing_is_written(tmp_path: Path, host: str) -> None:
    with pytest.raises(BadDefinition):
        made(tmp_path, host)
    assert list(tmp_path.iterdir()) == []


def test_limits(tmp_path: Path) -> None:
    for days in (0, MAX_CERTIFICATE_DAYS + 1):
        with pytest.raises(BadDefinition, match="days"):
            made(tmp_path, days=days)
    with pytest.raises(BadDefinition, match="MAX_HOSTS"):
        made(tmp_path, *(["a"] * (MAX_HOSTS + 1)))


def test_a_certificate_is_never_overwritten(tmp_path: Path) -> None:
    made(tmp_path)
    before = certificate_of(tmp_path / "tls.crt")
    with pytest.raises(BadKey):
        made(tmp_path)
    assert certificate_of(tmp_path / "tls.crt") == before


def test_files_that_are_no_certificate_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"tls\.crt"):
        certificate_of(tmp_path / "tls.crt")
    for content in (b"", b"nonsense", b"-" * (MAX_CERTIFICATE_FILE_BYTES + 1)):
        (tmp_path / "bad.crt").write_bytes(content)
        with pytest.raises(BadKey):
            certificate_of(tmp_path / "bad.crt")
        with pytest.raises(BadKey):
            client_context(content)
    with pytest.raises(BadKey):
        expires(tmp_path)


def test_a_server_needs_the_right_key_kept_safely(tmp_path: Path) -> None:
    one, two = made(tmp_path / "one"), made(tmp_path / "two")
    with pytest.raises(BadKey, match="not the key of"):
        server_context(one / "tls.crt", two / "tls.key")
    (one / "tls.key").chmod(0o644)
    with pytest.raises(BadKey) as refused:
        server_of(one)
    assert "chmod 600" in (refused.value.remedy or "")
