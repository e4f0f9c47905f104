"""Keys and certificates of one federation: an authority of its own, a server, a key a node.

Nodes trust the authority, and through it the server's certificate for the names it lists. SuperLink
knows each node by its public key (elliptic curve P-384, as Flower asks), in OpenSSH's format.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey
AUTHORITY_DAYS, SERVER_DAYS = 3650, 825


@dataclass(frozen=True)
class Pair:
    """What is public, and what only its owner may read."""

    public: bytes
    private: bytes


@dataclass(frozen=True)
class Certified:
    """An authority's certificate, and a server's that it signed."""

    authority: Pair
    server: Pair


def certified(hosts: Sequence[str]) -> Certified:
    """A new authority and a certificate of a server with these names or addresses."""
    root, key = _key(), _key()
    name = _name("headstart federation authority")
    authority = (
        _certificate(name, name, root, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(root, hashes.SHA384())
    )
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key())
    server = (
        _certificate(_name(hosts[0][:64]), name, key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(known, critical=False)
        .sign(root, hashes.SHA384())
    )
    pem = serialization.Encoding.PEM
    return Certified(
        Pair(authority.public_bytes(pem), _private(root)),
        Pair(server.public_bytes(pem), _private(key)),
    )


def node_key(name: str) -> Pair:
    """A node's key in OpenSSH's format; the public half is what the operator registers."""
    key = _key()
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    return Pair(public + f" {name}\n".encode(), private)


def _key() -> Key:
    return ec.generate_private_key(ec.SECP384R1())


def _private(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: Key, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
