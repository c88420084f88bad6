"""A bundle on a disk: its signed list, its blobs, its attachments, and the two files that start an installation."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from common.errors import InputError, IntegrityError, NotFoundError
from reservoir.contents.bundle import Bundle
from reservoir.download.cache import flush, flush_all, link_or_copy, space_on
from reservoir.signing import ed25519, keychain

LIST = "bundle.json"
SIGNATURE = "bundle.json.sig"
PUBLIC_KEY = "penstock.pub"
KEYS = "keys.json"
INSTALLER = ("install.sh", "bootstrap.py")
BLOBS = Path("blobs/sha256")
MEDIUM = "give the folder of a medium; what the reservoir keeps of a bundle that it took is none"
HINT = "do not use this bundle; get it again from its maker"
# what file systems and desktops put on a disc by themselves; nothing below is ever read
OF_THE_DISC = re.compile(r"lost\+found|System Volume Information|\.Trash-\d+")
_IDENTITY = re.compile(r"[^./][^/]*-[0-9a-f]{12}")


@dataclass(frozen=True)
class Signed:
    """The list of a bundle whose signature holds, and the very bytes that were checked: a medium may change later.

    `chain` is how `key`, which signed it, came to be the maker's.
    """

    bundle: Bundle
    content: bytes
    signature: bytes
    key: Ed25519PublicKey
    chain: keychain.Keychain


def encode(bundle: Bundle) -> bytes:
    """Return the exact bytes of a bundle's list."""
    content = bundle.model_dump(mode="json", by_alias=True)
    if bundle.expires is None:
        # a site of an earlier release knows no such word
        del content["expires"]
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def directory(bundle: Bundle, below: Path) -> Path:
    """Return the final folder of a bundle."""
    return below / f"{bundle.name}-{bundle.version}"


def identity(bundle: Bundle, content: bytes) -> str:
    """Return the name of this very bundle: name, version and the start of the hash of its list."""
    return f"{bundle.name}-{bundle.version}-{hashlib.sha256(content).hexdigest()[:12]}"


def is_identity(name: str) -> bool:
    """Say whether a name can be that of a bundle, as `identity` makes them."""
    return bool(_IDENTITY.fullmatch(name))


def decode(content: bytes, where: str) -> Bundle:
    """Return the list in `content`; raises IntegrityError where it is damaged."""
    try:
        return Bundle.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        if place[:1] == ["artifacts"]:
            # the kind, by which the model was chosen, is no key of the list
            del place[2:3]
        reason = f"not the list of a bundle: {first['msg']}"
        raise IntegrityError(reason, where=f"{where}: {'.'.join(place)}", hint=HINT) from error


def read_signed(
    folder: Path,
    key: Ed25519PublicKey | None,
    replaced: Mapping[str, str] = MappingProxyType({}),
    decoded: Callable[[bytes, str], Bundle] | None = None,
) -> Signed:
    """Return the list of a bundle after its signature was checked; every file is read once.

    `key` is the maker's public key, or one that it replaced; without it the key that travels with the bundle is taken,
    which shows that the bundle is whole, not who made it. `replaced` are keys in hex that count no more whatever `key`
    says, with the day on which each was replaced. `decoded` stands for `decode` where lists are known already.
    """
    path = folder / LIST
    try:
        content = ed25519.carried(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError("there is no bundle", where=str(path), hint="give the folder of a bundle") from error
    try:
        signature = ed25519.carried(folder / SIGNATURE, ed25519.SHORT)
    except FileNotFoundError as error:
        raise IntegrityError("the bundle is not signed", where=str(error.filename), hint=HINT) from error
    try:
        travelling = ed25519.carried(folder / PUBLIC_KEY, ed25519.SHORT)
    except FileNotFoundError as error:
        reason = "its maker's public key is missing"
        raise IntegrityError(reason, where=str(error.filename), hint=MEDIUM) from error
    try:
        signer = ed25519.read_public(travelling, str(folder / PUBLIC_KEY))
    except InputError as error:
        raise IntegrityError("the bundle's key is damaged", where=str(folder / PUBLIC_KEY), hint=HINT) from error
    if day := replaced.get(keychain.raw(signer)):
        raise IntegrityError(
            f"the bundle is signed with a key that was replaced on {day}",
            where=str(folder / PUBLIC_KEY),
            hint="ask its maker to build it again with the present key",
        )
    chain = keychain.carried(folder / KEYS)
    if not chain.leads(key or signer, signer):
        raise IntegrityError(
            f"the signature does not belong to the key {ed25519.fingerprint(key or signer)[:16]}, nor to one that "
            "replaced it",
            where=str(folder / SIGNATURE),
            hint=ed25519.HINT,
        )
    ed25519.check(signer, content, signature, str(folder / SIGNATURE))
    return Signed((decoded or decode)(content, str(path)), content, signature, signer, chain)


def assemble(
    bundle: Bundle,
    blobs: Iterable[Path],
    key: ed25519.SigningKey,
    below: Path,
    attachments: Mapping[str, bytes],
    *,
    chain: keychain.Keychain | None = None,
) -> Path:
    """Write a bundle beside its final name, wait until it is on the disk, then rename it; return its folder.

    `blobs` are checked files named by their hash; they are linked where the disk allows it. `attachments` are the files
    whose hashes the list holds, `chain` leads to the key. A bundle that lies there already is replaced at the end.
    """
    final = directory(bundle, below)
    below.mkdir(parents=True, exist_ok=True)
    staging = below / f".{final.name}.partial"
    shutil.rmtree(staging, ignore_errors=True)
    with space_on(below, staging):
        (staging / BLOBS).mkdir(parents=True)
        for blob in blobs:
            link_or_copy(blob, staging / BLOBS / blob.name)
        content = encode(bundle)
        (staging / LIST).write_bytes(content)
        (staging / SIGNATURE).write_bytes(ed25519.sign(key, content))
        (staging / PUBLIC_KEY).write_bytes(ed25519.public_pem(key))
        if chain and chain.rotations:
            (staging / KEYS).write_bytes(keychain.encode(chain))
        for name, text in attachments.items():
            (staging / name).write_bytes(text)
        for name in INSTALLER:
            (staging / name).write_bytes(installer(name))
            (staging / name).chmod(0o755)
        flush_all(staging)
    replace_folder(staging, final)
    return final


def replace_folder(new: Path, final: Path) -> None:
    """Put a finished folder under its final name; an older one goes away."""
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    new.rename(final)
    flush([final.parent])
    shutil.rmtree(old, ignore_errors=True)


def of_the_disc(path: Path) -> bool:
    """Say whether a folder at the root of a bundle belongs to the disc's file system, not to the bundle."""
    return path.is_dir() and not path.is_symlink() and OF_THE_DISC.fullmatch(path.name) is not None


def installer(name: str) -> bytes:
    """Return a file of the installer that travels with every bundle."""
    return installer_path(name).read_bytes()


def installer_path(name: str) -> Path:
    """Return where this program has its own copy of a file of the installer."""
    return Path(str(resources.files("reservoir").joinpath("installer", name)))
