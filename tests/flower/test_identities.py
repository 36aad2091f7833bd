"""Certificates that every TLS client accepts, keys that Flower reads, and nothing overwritten."""

from __future__ import annotations

import shutil
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="federations need Flower: pip install 'ebbflow[flower]'")

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.launch import identities
from ebbflow.flower.launch.identities import (
    KeyFiles,
    alternative_names,
    make_authority,
    make_node_key,
    make_server_certificate,
)


@pytest.fixture
def server(tmp_path: Path) -> KeyFiles:
    make_authority(tmp_path)
    return make_server_certificate(tmp_path, ["server.example.org", "192.0.2.7", "2001:db8::7"])


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


@contextmanager
def tls_server(files: KeyFiles) -> Iterator[int]:
    """Run a server on loopback that agrees on TLS and answers every request by "hello"."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.public, files.private)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(connection, server_side=True) as encrypted:
                        encrypted.recv(65536)
                        encrypted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
                except OSError:
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def strict(authority: Path) -> ssl.SSLContext:
    """Ask for what Python 3.13 asks for by default, on any Python."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.read_bytes().decode("ascii"))  # as Flower does
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_python_and_httpx_accept_the_server_under_strict_checks(
    server: KeyFiles, host: str
) -> None:
    with tls_server(server) as port:
        url = f"https://{host}:{port}/"
        answer = httpx.get(url, verify=strict(server.public.parent / "ca.crt"), trust_env=False)
    assert answer.text == "hello"


@pytest.mark.parametrize("name", ["server.example.org", "192.0.2.7", "2001:db8::7"])
def test_the_names_given_are_accepted_and_no_others(server: KeyFiles, name: str) -> None:
    context = strict(server.public.parent / "ca.crt")
    with tls_server(server) as port:
        with socket.create_connection(("127.0.0.1", port)) as plain:
            context.wrap_socket(plain, server_hostname=name).close()
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid for"),
        ):
            context.wrap_socket(plain, server_hostname="other.example.org")


def test_another_authority_does_not_vouch_for_the_server(server: KeyFiles, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other")
    with (
        tls_server(server) as port,
        pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        httpx.get(f"https://127.0.0.1:{port}/", verify=strict(other.public), trust_env=False)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_itself_finds_nothing_to_object_to(server: KeyFiles) -> None:
    authority = server.public.parent / "ca.crt"
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile"]
    done = subprocess.run(
        [*command, authority, server.public], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_the_certificates_say(server: KeyFiles) -> None:
    authority, ours = loaded(server.public.parent / "ca.crt"), loaded(server.public)
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert not ours.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    purposes = ours.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    names = ours.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "server.example.org"]
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "192.0.2.7", "2001:db8::7"]
    now = datetime.now(UTC)
    for certificate, years in ((authority, 9), (ours, 2)):
        assert certificate.not_valid_before_utc < now - timedelta(hours=12)
        assert certificate.not_valid_after_utc > now + timedelta(days=365 * years)
    assert ours.not_valid_after_utc <= authority.not_valid_after_utc


def test_two_authorities_have_two_names(tmp_path: Path) -> None:
    one, two = make_authority(tmp_path / "1"), make_authority(tmp_path / "2")
    assert loaded(one.public).subject != loaded(two.public).subject


def test_flower_reads_node_keys(tmp_path: Path) -> None:
    files = make_node_key(tmp_path / "keys" / "node0")
    assert files == KeyFiles(tmp_path / "keys" / "node0", tmp_path / "keys" / "node0.pub")
    private = serialization.load_ssh_private_key(files.private.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(private.curve, ec.SECP384R1)
    assert try_load_public_key(files.public) == public_key_to_bytes(private.public_key())


def test_no_two_keys_are_equal(tmp_path: Path) -> None:
    keys = {make_node_key(tmp_path / f"node{k}").public.read_bytes() for k in range(5)}
    assert len(keys) == 5


def test_only_their_owner_can_read_private_keys(server: KeyFiles, tmp_path: Path) -> None:
    node = make_node_key(tmp_path / "node0")
    for path in (tmp_path / "ca.key", server.private, node.private):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert not list(tmp_path.glob(".*")), "temporary files were left"


@pytest.mark.parametrize("existing", ["ca.key", "ca.crt"])
def test_no_authority_is_overwritten(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("precious")
    with pytest.raises(EbbflowError, match=rf"{existing} exists already.*move it away"):
        make_authority(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "precious"


@pytest.mark.parametrize("existing", ["server.key", "server.crt"])
def test_no_server_certificate_is_overwritten(tmp_path: Path, existing: str) -> None:
    make_authority(tmp_path)
    (tmp_path / existing).write_text("precious")
    with pytest.raises(EbbflowError, match=f"{existing} exists already"):
        make_server_certificate(tmp_path)
    assert (tmp_path / existing).read_text() == "precious"


@pytest.mark.parametrize("existing", ["node0", "node0.pub"])
def test_no_node_key_is_overwritten(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).symlink_to(tmp_path / "nowhere")  # not even a link that leads nowhere
    with pytest.raises(EbbflowError, match=f"{existing} exists already"):
        make_node_key(tmp_path / "node0")
    assert (tmp_path / existing).is_symlink()


def test_a_file_that_appears_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "_refuse_existing", lambda files: None)
    (tmp_path / "node0.pub").write_text("precious")
    with pytest.raises(EbbflowError, match=r"node0\.pub exists already"):
        make_node_key(tmp_path / "node0")
    assert [path.name for path in tmp_path.iterdir()] == ["node0.pub"], "half a pair was left"
    assert (tmp_path / "node0.pub").read_text() == "precious"


def test_a_server_certificate_can_be_renewed(server: KeyFiles) -> None:
    folder = server.public.parent
    for path in (server.private, server.public):
        path.rename(path.with_name("old-" + path.name))
    make_server_certificate(folder, ["new.example.org"])
    with tls_server(server) as port, socket.create_connection(("127.0.0.1", port)) as plain:
        context = strict(folder / "ca.crt")
        context.wrap_socket(plain, server_hostname="new.example.org").close()


def test_without_an_authority_there_is_no_server_certificate(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match=r"ca\.crt cannot be read"):
        make_server_certificate(tmp_path)
    make_authority(tmp_path)
    (tmp_path / "ca.key").write_text("not a key")
    with pytest.raises(EbbflowError, match=r"ca\.key is not the PEM file"):
        make_server_certificate(tmp_path)
    (tmp_path / "ca.key").unlink()
    (make_authority(tmp_path / "other").private).rename(tmp_path / "ca.key")
    with pytest.raises(EbbflowError, match=r"ca\.key is not the key of .*ca\.crt"):
        make_server_certificate(tmp_path)
    assert not (tmp_path / "server.key").exists()


def test_an_authority_that_has_run_out_signs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "AUTHORITY_LASTS", timedelta(hours=-1))
    make_authority(tmp_path)
    with pytest.raises(EbbflowError, match=r"ca\.crt ran out on"):
        make_server_certificate(tmp_path)


def test_no_server_certificate_outlives_its_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "AUTHORITY_LASTS", timedelta(days=3))
    authority = make_authority(tmp_path)
    server = make_server_certificate(tmp_path)
    assert loaded(server.public).not_valid_after_utc <= loaded(authority.public).not_valid_after_utc


@pytest.mark.parametrize(
    "host",
    ["", " ", "a b", "-a.example", "a..b", "a/b", "*.example.org", "host:8443", "[::1]", "1.2.3",
     "256.1.1.1", "ü.example", "a" * 64, "a\n", "a\x00b", ".".join(["a" * 60] * 5)],
)  # fmt: skip
def test_what_is_no_host_is_refused_by_its_name(host: str) -> None:
    with pytest.raises(EbbflowError, match="neither a host name nor an IP address") as refused:
        alternative_names([host])
    assert repr(host) in str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "fe80::1%eth0"])
def test_an_address_that_nodes_cannot_ask_for_is_refused(host: str) -> None:
    with pytest.raises(EbbflowError, match="not one that nodes can ask for"):
        alternative_names([host])


def test_a_host_given_twice_is_named_once() -> None:
    given_hosts = ["Server.Example", "server.example", "127.0.0.1", "localhost"]
    assert len(alternative_names(given_hosts)) == 3


@given(st.text(max_size=40))
def test_any_text_is_a_host_or_is_refused(host: str) -> None:
    try:
        names = alternative_names([host])
    except EbbflowError:
        return
    assert 2 <= len(names) <= 3
