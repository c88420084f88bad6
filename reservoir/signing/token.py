"""Keys in PKCS#11 tokens: the machine has a file that names one, and the private half never leaves the token."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from common.errors import InputError, UnavailableError

if TYPE_CHECKING:
    import pkcs11

SCHEME = "pkcs11:"
EXAMPLE = "pkcs11:token=vault;object=bundles?module-path=/usr/lib/softhsm/libsofthsm2.so"
NEEDED = ("token", "object", "module-path")
# the name of the curve as PKCS#11 3.0 has it, a PrintableString in DER
CURVE = b"\x13\x0cedwards25519"
RAW_BYTES = 32


@dataclass(frozen=True)
class Name:
    """Where a key lies: the driver of its token (`module`), the token's label, and the key's own."""

    module: str
    token: str
    label: str


@dataclass(frozen=True)
class TokenKey:
    """An Ed25519 key in a token, opened with its PIN; each signature is made there."""

    name: Name
    pin: str
    where: str
    public: Ed25519PublicKey

    def public_key(self) -> Ed25519PublicKey:
        """Return the public half."""
        return self.public

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, made by the token and held against the key that was opened."""
        from pkcs11 import Mechanism

        with _session(self.name, self.pin, self.where) as session:
            private = _find(session, self.name, "PRIVATE_KEY")
            if private is None:
                raise UnavailableError(f"the key {self.name.label} is gone", where=self.where, hint="look at the token")
            signature = bytes(private.sign(data, mechanism=Mechanism.EDDSA))
        self.public.verify(signature, data)
        return signature


def read(uri: str, where: str) -> Name:
    """Return what a PKCS#11 URI (RFC 7512) names; raises InputError where it says less, or what is not heard here."""
    path, _, query = uri.strip().removeprefix(SCHEME).partition("?")
    found = {}
    for part in [*path.split(";"), *(query.split("&") if query else [])]:
        key, separator, value = part.partition("=")
        if key not in NEEDED or not separator or not value or key in found:
            hint = f"write {EXAMPLE}"
            if key in ("pin-value", "pin-source"):
                hint = "name a file with the PIN in PENSTOCK_SIGNING_PASSWORD_FILE, or type it"
            raise InputError(f"{key or part!r} is not taken here, or says nothing", where=where, hint=hint)
        found[key] = unquote(value)
    if lacking := [key for key in NEEDED if key not in found]:
        raise InputError(f"the key's address has no {', '.join(lacking)}", where=where, hint=f"write {EXAMPLE}")
    return Name(found["module-path"], found["token"], found["object"])


def open_key(uri: str, pin: bytes, where: Path) -> TokenKey:
    """Return the key that a URI names; raises InputError where the token has none, or does not open."""
    name = read(uri, str(where))
    with _session(name, pin.decode(), str(where)) as session:
        public = _public(session, name, str(where))
    if public is None:
        raise InputError(
            f"the token {name.token} has no Ed25519 key {name.label}",
            where=str(where),
            hint="make one with `penstock reservoir key new --pkcs11 URI`",
        )
    return TokenKey(name, pin.decode(), str(where), public)


def make_key(uri: str, pin: bytes, where: Path) -> TokenKey:
    """Make the key that a URI names in its token, from which it cannot be read; one that is there already is taken."""
    from pkcs11 import Attribute, KeyType, Mechanism

    name = read(uri, str(where))
    with _session(name, pin.decode(), str(where), write=True) as session:
        if _public(session, name, str(where)) is None:
            kind = {Attribute.EC_PARAMS: CURVE}
            domain = session.create_domain_parameters(KeyType.EC_EDWARDS, kind, local=True)
            domain.generate_keypair(
                mechanism=Mechanism.EC_EDWARDS_KEY_PAIR_GEN,
                store=True,
                label=name.label,
                private_template={Attribute.SENSITIVE: True, Attribute.EXTRACTABLE: False},
            )
    return open_key(uri, pin, where)


def _public(session: pkcs11.Session, name: Name, where: str) -> Ed25519PublicKey | None:
    """Return the public half of a key that the token holds both halves of; None where there is none of that name."""
    from pkcs11 import Attribute

    public, private = (_find(session, name, kind) for kind in ("PUBLIC_KEY", "PRIVATE_KEY"))
    if public is None and private is None:
        return None
    # the point is an octet string in DER, or, by tokens of before PKCS#11 3.0, the bytes themselves
    point = bytes(public[Attribute.EC_POINT])[-RAW_BYTES:] if public is not None and private is not None else b""
    if len(point) != RAW_BYTES:
        raise InputError(f"the token has one half of the key {name.label} alone", where=where, hint="name another key")
    return Ed25519PublicKey.from_public_bytes(point)


def _find(session: pkcs11.Session, name: Name, kind: str) -> Any:
    from pkcs11 import Attribute, KeyType, ObjectClass
    from pkcs11.exceptions import MultipleObjectsReturned

    wanted = {
        Attribute.CLASS: ObjectClass[kind],
        Attribute.KEY_TYPE: KeyType.EC_EDWARDS,
        Attribute.LABEL: name.label,
    }
    found = list(session.get_objects(wanted))
    if len(found) > 1:
        raise MultipleObjectsReturned(f"{len(found)} keys are called {name.label}")
    return found[0] if found else None


@contextmanager
def _session(name: Name, pin: str, where: str, *, write: bool = False) -> Iterator[pkcs11.Session]:
    """Open the token with its PIN; what it refuses is an InputError in its own words."""
    try:
        library = importlib.import_module("pkcs11")
    except ImportError as error:
        raise InputError(
            "the key lies in a PKCS#11 token, and this installation cannot talk to one",
            where=where,
            hint="install `penstock[build]`",
        ) from error
    try:
        token = library.lib(name.module).get_token(token_label=name.token)
        with token.open(user_pin=pin, rw=write) as session:
            yield session
    except library.exceptions.PKCS11Error as error:
        said = f"{type(error).__name__} {error}".strip()
        raise InputError(
            f"the token {name.token} does not do it: {said}",
            where=where,
            hint="check module, label and PIN; `pkcs11-tool --module MODULE --list-objects --login` shows its keys",
        ) from error
