"""Who is who in a federation: a certificate authority, the server's certificate, the nodes' keys.

Nodes know the server by a certificate that the federation's own authority has signed; the server
knows nodes by their public keys. Private keys are readable by their owner alone, each file appears
whole or not at all, and none is ever overwritten: what a node already trusts would be lost.

The authority's key is needed again only when the server gets another name or its certificate runs
out. Move ``server.crt`` and ``server.key`` away then, and make them again: nodes need nothing new.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder, write_new

AUTHORITY, SERVER = "ca", "server"
"""The names of the files, without ``.crt`` and ``.key``."""
ALWAYS = ("127.0.0.1", "localhost")
"""What every server certificate holds for: the gate itself asks the SuperLink there."""
AUTHORITY_LASTS = timedelta(days=3650)
SERVER_LASTS = timedelta(days=825)
"""The longest that every common TLS client accepts of a private authority."""
CLOCKS = timedelta(days=1)
"""How far a node's clock may be behind on the day the certificates are made."""

_PRIVATE, _PUBLIC = 0o600, 0o644
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LONGEST_NAME = 253


@dataclass(frozen=True)
class KeyFiles:
    """A private key and what may be shown of it: a certificate, or a public key."""

    private: Path
    public: Path


def make_authority(folder: Path) -> KeyFiles:
    """Write a certificate authority, ``ca.key`` and ``ca.crt``, that can sign servers only."""
    files = _certificate_files(folder, AUTHORITY)
    _refuse_existing(files)
    key = _new_key()
    # OpenSSL mixes up two authorities of one name, so each gets its own.
    subject = _name(f"ebbflow federation {secrets.token_hex(8)}")
    certificate = (
        _builder(subject, subject, key, AUTHORITY_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    _write_pair(files, _pem(key), _signed(certificate, key))
    return files


def make_server_certificate(folder: Path, hosts: Iterable[str] = ()) -> KeyFiles:
    """Write ``server.key`` and ``server.crt``, signed by the authority in the same folder.

    ``hosts`` are the names and addresses by which nodes ask for the server; 127.0.0.1 and
    localhost are always among them.
    """
    names = alternative_names(hosts)
    files = _certificate_files(folder, SERVER)
    _refuse_existing(files)
    authority, authority_key = _load_authority(folder)
    key = _new_key()
    left = authority.not_valid_after_utc - datetime.now(UTC)
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    certificate = (
        _builder(_name("ebbflow server"), authority.subject, key, min(SERVER_LASTS, left))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer, critical=False)
    )
    _write_pair(files, _pem(key), _signed(certificate, authority_key))
    return files


def make_node_key(path: Path) -> KeyFiles:
    """Write a node's private key and, beside it, its public key with the suffix ``.pub``.

    Both are in OpenSSH's format: ``flower-supernode --auth-supernode-private-key`` reads the one,
    ``flwr supernode register`` the other.
    """
    files = KeyFiles(path, path.with_name(path.name + ".pub"))
    _refuse_existing(files)
    key = _new_key()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _write_pair(files, private, public + b"\n")
    return files


def alternative_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    """Return the names a server certificate holds for, each once, those of every server first."""
    names: dict[x509.GeneralName, None] = {}
    for host in (*ALWAYS, *hosts):
        address = _address(host)
        names[x509.DNSName(host.lower()) if address is None else x509.IPAddress(address)] = None
    return list(names)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a host is, or None if it is a name; refuse what is neither."""
    try:
        address = ip_address(host)
    except ValueError:
        labels = host.split(".")
        if (
            len(host) > _LONGEST_NAME
            or not all(_LABEL.fullmatch(label) for label in labels)
            or labels[-1].isdecimal()
        ):
            raise EbbflowError(
                f"{host!r} is neither a host name nor an IP address, so no certificate can hold "
                "for it: give it as in server.example.org, 192.0.2.7 or 2001:db8::7"
            ) from None
        return None
    if address.is_unspecified or getattr(address, "scope_id", None):
        raise EbbflowError(
            f"{host!r} is an address to listen on, not one that nodes can ask for: give the "
            "addresses or names by which nodes reach this machine"
        )
    return address


def _load_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    files = _certificate_files(folder, AUTHORITY)
    with _readable(files.public):
        certificate = x509.load_pem_x509_certificate(files.public.read_bytes())
    with _readable(files.private):
        key = serialization.load_pem_private_key(files.private.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise EbbflowError(f"{files.private} holds no elliptic-curve key: make the authority anew")
    if key.public_key() != certificate.public_key():
        raise EbbflowError(
            f"{files.private} is not the key of {files.public}: put the pair that belongs together "
            f"into {folder}"
        )
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise EbbflowError(
            f"{files.public} ran out on {certificate.not_valid_after_utc:%d %B %Y}: make a new "
            "authority in another folder, and give its ca.crt to every node"
        )
    return certificate, key


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EbbflowError(
            f"{path} cannot be read ({error.strerror}): a server certificate needs the authority "
            "that signs it, in the same folder"
        ) from error
    except (TypeError, ValueError) as error:
        raise EbbflowError(
            f"{path} is not the PEM file of an authority without a password: put the file that "
            "was made with the federation in its place"
        ) from error


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - CLOCKS,
        not_valid_after=now + lasts,
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(certificate: x509.CertificateBuilder, by: ec.EllipticCurvePrivateKey) -> bytes:
    encoding = serialization.Encoding.PEM
    return certificate.sign(by, hashes.SHA384()).public_bytes(encoding)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate_files(folder: Path, name: str) -> KeyFiles:
    return KeyFiles(folder / f"{name}.key", folder / f"{name}.crt")


def _refuse_existing(files: KeyFiles) -> None:
    for path in (files.private, files.public):
        if path.exists() or path.is_symlink():
            raise _exists(path)


def _exists(path: Path) -> EbbflowError:
    return EbbflowError(
        f"{path} exists already, and no key or certificate is ever overwritten: move it away, or "
        "name another folder"
    )


def _write_pair(files: KeyFiles, private: bytes, public: bytes) -> None:
    make_folder(files.private.parent)
    _write_new(files.private, private, _PRIVATE)
    try:
        _write_new(files.public, public, _PUBLIC)
    except BaseException:  # one without the other is of no use, and would be in the way
        files.private.unlink()
        raise


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        write_new(path, content, mode)
    except FileExistsError:
        raise _exists(path) from None
