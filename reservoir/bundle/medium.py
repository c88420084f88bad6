"""Medium: a folder that carries a part of a bundle, as a delta for one site, as one of several media, or both.

Such a folder is a bundle whose list is the full one; `volume.json` beside it says which blobs came along and why.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ConfigDict, Field, ValidationError

from common.errors import IntegrityError
from common.strict import StrictModel
from reservoir.contents.bundle import Bundle
from reservoir.manifest.model import Sha256
from reservoir.signing import ed25519

DESCRIPTION = "volume.json"
DESCRIPTION_SIGNATURE = "volume.json.sig"
HINT = "do not use this medium; get it again from its maker"
Size = Annotated[int, Field(ge=1)]


class Since(StrictModel):
    """The receipt that a delta was made for: the fingerprint of the site's key, the receipt's serial and sha256."""

    site: Sha256
    serial: Size
    receipt: Sha256


class Piece(StrictModel):
    """A part of a blob that is bigger than a medium."""

    sha256: Sha256
    size: Size


class Medium(StrictModel):
    """The content of `volume.json`, the same on every medium of a set but for its `number`, counted from 1.

    `bundle` is the sha256 of `bundle.json`; `files` names by medium what lies in its `blobs/sha256`: blobs, and pieces
    of those in `cut`; `since` is set where only what one site lacks is carried; `capacity` counts bytes.
    """

    document: Literal["penstock volume"] = "penstock volume"
    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    bundle: Sha256
    number: Size
    files: Annotated[list[list[Sha256]], Field(min_length=1)]
    cut: dict[Sha256, list[Piece]] = Field(default_factory=dict)
    since: Since | None = None
    capacity: Size | None = None

    model_config = ConfigDict(populate_by_name=True)

    @property
    def count(self) -> int:
        """Return how many media the set has."""
        return len(self.files)

    @property
    def title(self) -> str:
        """Return the name of this medium for people."""
        return f"medium {self.number} of {self.count}"

    def piece_sizes(self) -> dict[str, int]:
        """Return the size in bytes of every piece by its hash."""
        return {piece.sha256: piece.size for pieces in self.cut.values() for piece in pieces}

    def carried(self) -> set[str]:
        """Return the blobs that the whole set carries."""
        return {name for names in self.files for name in names} - self.piece_sizes().keys() | self.cut.keys()

    def set_name(self) -> str:
        """Return what all media of one set have in common: a hash of the description without its number."""
        return hashlib.sha256(encode(self.model_copy(update={"number": 1}))).hexdigest()


def encode(medium: Medium) -> bytes:
    """Return the bytes of a medium's description."""
    return json.dumps(medium.model_dump(mode="json", by_alias=True), sort_keys=True).encode() + b"\n"


def decode(content: bytes, bundle: Bundle, bundle_sha256: str, where: str) -> Medium:
    """Return the description in `content`; raises IntegrityError where it is not one of this bundle."""
    try:
        medium = Medium.model_validate_json(content)
    except ValidationError as error:
        raise IntegrityError("not the description of a medium", where=where, hint=HINT) from error
    sizes = bundle.sizes()
    named = [name for names in medium.files for name in names]
    whole = {blob: sum(piece.size for piece in pieces) for blob, pieces in medium.cut.items()}
    sound = (
        medium.bundle == bundle_sha256
        and medium.number <= medium.count
        and len(named) == len(set(named))
        and medium.carried() <= sizes.keys()
        and medium.piece_sizes().keys() <= set(named)
        and all(sizes[blob] == size for blob, size in whole.items())
        and (medium.since is not None or medium.carried() == sizes.keys())
    )
    if not sound:
        raise IntegrityError("the description of the medium does not fit the bundle", where=where, hint=HINT)
    return medium


def read(folder: Path, bundle: Bundle, content: bytes, key: Ed25519PublicKey) -> Medium | None:
    """Return what a folder says about its part of the bundle, None for a full one; `content` is the bundle's list."""
    path = folder / DESCRIPTION
    try:
        described = ed25519.carried(path)
        signature = ed25519.carried(folder / DESCRIPTION_SIGNATURE, ed25519.SHORT)
    except FileNotFoundError as error:
        if error.filename == str(path) and not (folder / DESCRIPTION_SIGNATURE).exists():
            return None
        raise IntegrityError("the description of the medium is not whole", where=str(folder), hint=HINT) from error
    ed25519.check(key, described, signature, str(folder / DESCRIPTION_SIGNATURE), HINT)
    return decode(described, bundle, hashlib.sha256(content).hexdigest(), str(path))
