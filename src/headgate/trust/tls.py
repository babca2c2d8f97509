"""TLS: the domain's own certificate, and contexts that trust nothing else.

Guarantees: TLS 1.2 or newer with forward secrecy; the name is always checked; a client with a pinned certificate trusts
that one and no authority besides. The private key of a new certificate is readable by its owner alone.
Leaves out: certificates of other authorities, which an operator may put in place of the domain's own, and renewal; a
pinned certificate of an authority vouches for all that the authority signs.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import socket
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headgate.model.errors import BadDefinition, BadKey, NotFound
from headgate.model.limits import MAX_CERTIFICATE_DAYS, MAX_CERTIFICATE_FILE_BYTES, MAX_HOSTS, MAX_KEY_FILE_BYTES
from headgate.model.values import brief
from headgate.trust.keys import read_secret, write_secret

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
ALWAYS: Final = ("localhost", "127.0.0.1", "::1")
"""What every certificate of a domain is good for."""

_SKEW: Final = timedelta(hours=1)
"""A new certificate counts from a little earlier, for machines whose clock is behind."""

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2; those of TLS 1.3 are all good."""

_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\Z")


def make_certificate(
    directory: Path, hosts: Sequence[str], now: datetime, days: int, *, machine: str | None = None
) -> None:
    """Write `tls.crt` and `tls.key`, self-signed, for this machine and the given names and addresses."""
    if not 1 <= days <= MAX_CERTIFICATE_DAYS:
        raise BadDefinition(f"a certificate cannot be good for `{days}` days", remedy=f"1 to {MAX_CERTIFICATE_DAYS}")
    if len(hosts) > MAX_HOSTS:
        raise BadDefinition(f"`{len(hosts)}` hosts are more than MAX_HOSTS ({MAX_HOSTS})")
    own = socket.gethostname() if machine is None else machine
    # A machine may have a name that no certificate can carry; what the operator asks for must fit.
    names = [*ALWAYS, *([own] if _HOST.match(own) else []), *hosts]
    alternatives = dict.fromkeys(_general_name(name) for name in names)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headgate")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        # No authority: whoever trusts this certificate does not trust what its key might sign.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_signs_only(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, SHA256())
    )
    write_secret(directory / KEY, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (directory / CERTIFICATE).write_bytes(certificate.public_bytes(Encoding.PEM))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _HOST.match(host):
        raise BadDefinition(
            f"`{brief(host)}` is neither a host name nor an address", remedy="write `gate.example.org` or `10.0.0.7`"
        )
    return x509.DNSName(host.lower())


def _signs_only() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


# -- looking --------------------------------------------------------------------------------------------------


def fingerprint(der: bytes) -> str:
    """The SHA-256 of a certificate, in hexadecimal: what a handshake is bound to."""
    return hashlib.sha256(der).hexdigest()


def certificate_of(path: Path) -> bytes:
    """The first certificate of a PEM file, as DER."""
    return _first(_read(path), str(path)).public_bytes(Encoding.DER)


def expires(path: Path) -> datetime:
    """When the first certificate of a PEM file expires."""
    return _first(_read(path), str(path)).not_valid_after_utc


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CERTIFICATE_FILE_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no certificate `{path}`", remedy="`headgate init` makes one") from None
    except OSError as error:
        raise BadKey(f"`{path}` cannot be read ({error.strerror})") from None
    return data


def _first(pem: bytes, source: str) -> x509.Certificate:
    if len(pem) > MAX_CERTIFICATE_FILE_BYTES:
        raise BadKey(
            f"the certificate is longer than MAX_CERTIFICATE_FILE_BYTES ({MAX_CERTIFICATE_FILE_BYTES})", place=source
        )
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise BadKey("there is no certificate in it", place=source, remedy="it should be in PEM") from None


# -- contexts -------------------------------------------------------------------------------------------------


def client_context(pinned: bytes | None = None) -> ssl.SSLContext:
    """A context that trusts exactly the pinned certificate (PEM), or without one what this machine trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the certificate and the host name
    _strict(context)
    if pinned is None:
        context.load_default_certs()
        return context
    # The certificate itself is the anchor, also where an authority signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=_first(pinned, "the pinned certificate").public_bytes(Encoding.DER))
    return context


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A context that serves a certificate with its key."""
    read_secret(key, MAX_KEY_FILE_BYTES)  # refuses a key that others can read
    _first(_read(certificate), str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _strict(context)
    try:
        # An empty password, so that a key under one is an error and not a question on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError):
        raise BadKey(
            f"`{key}` is not the key of `{certificate}`", remedy="put the certificate and its key there, both in PEM"
        ) from None
    return context


def _strict(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
