"""Trust: which key a site's bundles must be signed with, how that came about, and what it takes to trust another one.

The installer writes the same record beside the key that it keeps, so that the first import knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ConfigDict, Field, ValidationError, model_validator

from common import files
from common.errors import InputError, IntegrityError
from common.strict import StrictModel
from reservoir import settings
from reservoir.bundle import bundles
from reservoir.bundle.verification import Verified
from reservoir.download.cache import flush
from reservoir.intake.store import Store
from reservoir.manifest.model import Sha256
from reservoir.signing import ed25519, keychain
from reservoir.signing.ed25519 import fingerprint

PINNED = "bundle.pub"
RECORD = "bundle.trust.json"
CHAIN = "bundle.keys.json"
HOW = {
    "key": "given with --key",
    "first-use": "trusted at first sight with --trust-first: compare it with its maker's",
    "unknown": "trusted before this was noted: compare it with its maker's",
}


class Trust(StrictModel):
    """A key that is trusted, by its fingerprint, and how it came to be.

    `since` is the day on which the administrator spoke, empty where that is not known. `follows` is the key that it
    replaced by its maker's own chain, `instead_of` one that the administrator gave up for it. `before` names every key
    that was trusted before it, the first one first; who comes back to a key names it again. Fields that a later release
    writes beside are passed over, as the installer does.
    """

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    fingerprint: Sha256
    how: Literal["key", "first-use", "unknown"]
    since: str = ""
    follows: Sha256 | None = None
    instead_of: Sha256 | None = None
    before: list[Sha256] = Field(default_factory=list)

    model_config = ConfigDict(populate_by_name=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _as_noted_once(cls, noted: Any) -> Any:
        # records of before this was noted name the last one alone
        if isinstance(noted, dict) and noted.get("instead_of") and "before" not in noted:
            return noted | {"before": [noted["instead_of"]]}
        return noted

    def told(self) -> dict[str, str | None]:
        """Return it for programs."""
        return self.model_dump(exclude={"schema_", "before"})

    @property
    def words(self) -> str:
        """Return how the key came to be trusted, for people."""
        said = HOW[self.how] if not self.since else f"{HOW[self.how]} (on {self.since})"
        said += f"; it replaced {self.follows[:16]} by a signed statement" if self.follows else ""
        return said + (f"; in place of {self.instead_of[:16]}, which was given up" if self.instead_of else "")


@dataclass(frozen=True)
class Spoken:
    """What an administrator says with an import: the maker's `key`, or that the first key may count.

    `replace` trusts `key` instead of another one that the site trusts.
    """

    key: Ed25519PublicKey | None = None
    first: bool = False
    replace: bool = False

    @property
    def replaces(self) -> bool:
        """Say whether the given key counts whatever was known before."""
        return self.replace and self.key is not None


@dataclass(frozen=True)
class Known:
    """A key that counts at a site already, and the chain of those that it replaced since the site knew one."""

    key: Ed25519PublicKey
    trust: Trust
    chain: keychain.Keychain

    @property
    def earlier(self) -> list[str]:
        """Return the fingerprints of the keys that were given up, or replaced, before this one."""
        rotations = self.chain.rotations
        ends = bool(rotations) and rotations[-1].new == keychain.raw(self.key)
        followed = [keychain.fingerprint(each.old) for each in rotations] if ends else []
        return [*self.trust.before, *(name for name in followed if name not in self.trust.before)]


def known(store: Store, installed: Path | None = None, *, given_up: bool = False) -> Known | None:
    """Return the key that this site's bundles are signed with: the site's own pin, else what the installer keeps.

    Where the installer followed a chain of keys from the site's, or an administrator gave that one up there, the
    installer's counts before the next import.
    `installed` is the folder that the installer made, else the one that this program runs from. With `given_up` an
    administrator trusts another key whatever is kept, so what is damaged there counts for nothing.
    """
    own, kept = (
        _kept(path, given_up)
        for path in (store.pinned_key, installed / PINNED if installed else settings.installer_key())
    )
    if own and kept and _later(kept, own):
        if keychain.raw(own.key) not in kept.chain.replaced():
            return kept
        # the site's chain goes on, and may know nothing of how the installer's began
        trust = kept.trust.model_copy(update={"before": kept.earlier})
        return Known(kept.key, trust, own.chain.grown(own.key, kept.chain))
    return own or kept


def _kept(path: Path, given_up: bool) -> Known | None:
    if not path.exists():
        return None
    try:
        key = ed25519.read_public(path.read_bytes(), str(path))
    except InputError:
        if given_up:
            return None
        raise
    try:
        chain = keychain.read(path.with_name(CHAIN))
    except IntegrityError:
        if not given_up:
            raise
        chain = keychain.Keychain(rotations=[])
    return Known(key, _noted(path.with_name(RECORD), fingerprint(key), given_up), chain)


def _later(one: Known, other: Known) -> bool:
    """Say whether one key came after the other; the installer asks the same.

    Whoever changes the key goes on from the one that counts, so of two that name each other the longer list is the
    later one; days decide between records of before lists were kept.
    """
    if other.trust.fingerprint not in one.earlier:
        return False
    moments = [(len(each.trust.before), each.trust.since) for each in (one, other)]
    return one.trust.fingerprint not in other.earlier or moments[0] > moments[1]


def expected_key(store: Store) -> Ed25519PublicKey | None:
    """Return the key that this site's bundles are signed with, once it is known: by an import, or by the installer."""
    found = known(store)
    return found.key if found else None


def decide(found: Verified, before: Known | None, spoken: Spoken) -> Trust:
    """Return how the key of a bundle, whose signature holds, is trusted after what is known and was spoken.

    Raises IntegrityError where nobody vouches for it, or where another one is trusted and not given up.
    """
    name, where = fingerprint(found.key), str(found.folder / bundles.PUBLIC_KEY)
    today = f"{datetime.now(UTC):%F}"
    if before is None:
        if spoken.key is None and not spoken.first:
            raise IntegrityError(
                f"the bundle is signed by {name}, a key that this site does not know",
                where=where,
                hint="give the maker's key with --key; or compare this fingerprint with its maker's and say "
                "--trust-first",
            )
        return Trust(fingerprint=name, how="key" if spoken.key else "first-use", since=today)
    trusted, follows = before.trust, fingerprint(before.key)
    same = name == follows
    led = {keychain.fingerprint(each.new) for each in found.chain.after(keychain.raw(before.key))}
    given_up = not same and bool(led & set(before.earlier))
    if same or (found.chain.leads(before.key, found.key) and not given_up and not spoken.replaces):
        changed: dict[str, Any] = {"fingerprint": name, "follows": follows, "before": [*before.earlier, follows]}
        if same:
            # who replaces a key keeps no chain, which told of some of these
            changed = {"before": before.earlier} if spoken.replaces else {}
        steps = trusted.model_copy(update=changed)
        # whoever gives the key now has got it by another way, whatever was said before
        return steps.model_copy(update={"how": "key", "since": today}) if spoken.key and trusted.how != "key" else steps
    if not spoken.replaces:
        why = "was given up for it, or follows one that was" if given_up else "did not replace it"
        raise IntegrityError(
            f"this site trusts the key {follows}, and {name}, which signed the bundle, {why}",
            where=where,
            hint="compare both with their maker's; to trust the given key instead say --replace-key as well",
        )
    return Trust(fingerprint=name, how="key", since=today, instead_of=follows, before=[*before.earlier, follows])


def heeded(before: Known | None, spoken: Spoken) -> keychain.Keychain:
    """Return the chain that a bundle's has to go on from; none counts against an administrator who replaces the key."""
    return keychain.Keychain(rotations=[]) if before is None or spoken.replaces else before.chain


def pin(store: Store, found: Verified, trust: Trust, before: Known | None, spoken: Spoken) -> None:
    """Remember the bundle's key as the one of this site, how it came to be trusted, and what it replaced."""
    trusted = before.key if before and not spoken.replaces else spoken.key or found.key
    chain = heeded(before, spoken).grown(trusted, found.chain)
    # the record comes first, as it tells of the key that is still there too, and the key last: when this is interrupted
    # before, the old key is refused already
    _keep(store.keys / RECORD, trust.model_dump_json(by_alias=True).encode() + b"\n")
    if chain.rotations:
        _keep(store.keychain, keychain.encode(chain))
    else:
        store.keychain.unlink(missing_ok=True)
    _keep(store.pinned_key, ed25519.encode_public(found.key))


def _keep(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        files.write(path, content)
        flush([path.parent])


def _noted(path: Path, name: str, given_up: bool) -> Trust:
    """Return what is noted of the key with this fingerprint; with `given_up` what is damaged is nothing.

    A record comes before its key: where that was interrupted, it names the one that is there among those before.
    """
    nothing = Trust(fingerprint=name, how="unknown")
    if not path.exists():
        return nothing
    try:
        noted = Trust.model_validate_json(path.read_bytes())
    except IsADirectoryError as error:
        raise IntegrityError(
            "is a folder, so nobody knows which keys were given up",
            where=str(path),
            hint="compare the key with its maker's; remove it, then give the key with --key and say --replace-key",
        ) from error
    except ValidationError as error:
        if given_up:
            return nothing
        raise IntegrityError(
            "damaged, so nobody knows which keys were given up",
            where=str(path),
            hint="compare the key with its maker's; give it with --key and say --replace-key",
        ) from error
    if noted.fingerprint == name:
        return noted
    last = max((place for place, each in enumerate(noted.before) if each == name), default=len(noted.before))
    # what is said of a key holds for the one that replaced it by a signed statement
    said = noted.model_dump(include={"how", "since", "instead_of"}) if noted.follows == name else {}
    return nothing.model_copy(update={**said, "before": noted.before[:last]})
