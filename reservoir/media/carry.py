"""Media as they are written to a disk: what is whole is linked, so it takes no space of its own."""

from __future__ import annotations

import os
from pathlib import Path

from common.errors import ConflictError
from reservoir.bundle import bundles
from reservoir.bundle.bundles import BLOBS
from reservoir.bundle.medium import DESCRIPTION, DESCRIPTION_SIGNATURE, Medium, encode
from reservoir.bundle.verification import Verified
from reservoir.download.cache import CHUNK, flush_all, link_or_copy
from reservoir.signing import ed25519, keychain


def beside(found: Verified) -> list[str]:
    """Return the names of the files that travel beside the blobs on every medium."""
    names = [bundles.LIST, bundles.SIGNATURE, bundles.PUBLIC_KEY]
    names += [bundles.KEYS] if found.chain.rotations else []
    return [*names, *found.bundle.installer, *found.bundle.attachments]


def require_maker(found: Verified, key: ed25519.SigningKey) -> None:
    """Raise ConflictError unless the bundle was signed with this key."""
    if keychain.raw(key.public_key()) != keychain.raw(found.key):
        raise ConflictError(
            "the bundle was signed with another key, and its media must be signed with the same one",
            where=str(found.folder / bundles.SIGNATURE),
            hint="build the bundle again with the present key, then go on",
        )


def write(found: Verified, medium: Medium, key: ed25519.SigningKey, folder: Path) -> None:
    """Write the medium of a bundle whose files are whole, and wait until it is on the disk."""
    (folder / BLOBS).mkdir(parents=True)
    for name in beside(found):
        link_or_copy(found.folder / name, folder / name)
        (folder / name).chmod((found.folder / name).stat().st_mode & 0o777)
    pieces = {piece.sha256: (blob, index) for blob, cut in medium.cut.items() for index, piece in enumerate(cut)}
    for name in medium.files[medium.number - 1]:
        if name in pieces:
            blob, index = pieces[name]
            skipped = sum(piece.size for piece in medium.cut[blob][:index])
            _write_piece(found.folder / BLOBS / blob, skipped, medium.cut[blob][index].size, folder / BLOBS / name)
        else:
            link_or_copy(found.folder / BLOBS / name, folder / BLOBS / name)
    content = encode(medium)
    (folder / DESCRIPTION).write_bytes(content)
    (folder / DESCRIPTION_SIGNATURE).write_bytes(ed25519.sign(key, content))
    flush_all(folder)


def _write_piece(blob: Path, skipped: int, size: int, path: Path) -> None:
    with blob.open("rb") as source, path.open("wb") as file:
        source.seek(skipped, os.SEEK_SET)
        left = size
        while left and (content := source.read(min(CHUNK, left))):
            file.write(content)
            left -= len(content)
    path.chmod(0o444)
