"""Installer of Penstock from the bundle around this file, with Python's standard library only.

The signature of the list and the hash of every package are checked before anything of the bundle runs.
The code is self-contained on purpose: it stands where nothing is installed yet.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import csv
import errno
import fcntl
import functools
import hashlib
import json
import math
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Point = tuple[int, int, int, int]

EXTRAS = "reservoir,site"
OLDEST_PYTHON = (3, 11)
# in what was installed, which bundle it came from, and the digest of the lists of its files
INSTALLED = "bundle.sha256"
MAKER = "get it again from its maker"
OTHER = f"do not use this bundle; {MAKER}, or check which key is theirs"
TRUST = "bundle.trust.json"
CHAIN = "bundle.keys.json"
HOW = {
    "key": "given with --key",
    "first-use": "trusted at first sight with --trust-first: compare it with its maker's",
    "unknown": "trusted before this was noted: compare it with its maker's",
}
# bytes; a list of a million files is shorter
LONGEST = 1 << 30
# bytes; a key or a signature is shorter, and a chain of keys than the other
SHORT = 4 << 10
CHAIN_LONGEST = 1 << 20
# keys of one maker, one after another; each signature takes time
ROTATIONS = 64
# what stands in front of the 32 bytes of every Ed25519 key
ED25519 = bytes.fromhex("302a300506032b6570032100")
HEX = re.compile(r"[0-9a-f]{64}")
# a name that leads nowhere else
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+~^!-]{0,254}")
# as bundles are named, and the day on which one ends
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# versions as PEP 440 writes them, and the order of what comes before a release
VERSION = re.compile(
    r"(?=.{1,200}$)v?((?P<epoch>\d+)!)?(?P<release>\d+(\.\d+)*)"
    r"(?P<pre>[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?\d*)?"
    r"(?P<post>[-_.]?(post|rev|r)[-_.]?\d*|-\d+)?(?P<dev>[-_.]?dev[-_.]?\d*)?(\+(?P<local>[a-z0-9]+([-_.][a-z0-9]+)*))?",
    re.ASCII | re.IGNORECASE,
)
PRE = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
# the forms of what is read: see `has`
ARTIFACT = {"kind": str, "name": str, "version": str, "filename": FILE, "sha256": HEX, "size": int, "targets": [str]}
LIST = {"name": NAME, "version": VERSION, "created": str, "targets": [{"name": str}], "artifacts": [ARTIFACT]}
LIST.update({"installer": (FILE, HEX), "attachments": (FILE, HEX)})
MEDIUM = {"bundle": HEX, "number": int, "files": [[HEX]], "cut": (HEX, [{"sha256": HEX, "size": int}])}
ROTATION = {"number": int, "date": DAY, "old": HEX, "new": HEX, "signature": str}
RECORD = {"fingerprint": HEX, "how": re.compile("|".join(HOW)), "since": str, "before": [HEX]}
FOLDER = "compare the key with its maker's; remove it, then give the key with --key and say --replace-key"
# what file systems and desktops put on a disc by themselves
OF_THE_DISC = re.compile(r"lost\+found|System Volume Information|\.Trash-\d+")


class BusyError(Exception):
    """A deploy or another installation is running."""


class RefusedError(Exception):
    """The bundle or this machine does not let the installation go on."""


def refuse(where: Path, reason: str, hint: str) -> NoReturn:
    """Stop with what is wrong and what to do about it."""
    raise RefusedError(f"{where}: {reason}. Hint: {hint}.")


# Ed25519 as in RFC 8032, section 5.1; only verification, so time that depends on the data gives nothing away
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_MINUS_1 = pow(2, (P - 1) // 4, P)


def add(a: Point, b: Point) -> Point:
    """Add two points of the curve in extended coordinates."""
    e = (a[1] - a[0]) * (b[1] - b[0]) % P
    f = (a[1] + a[0]) * (b[1] + b[0]) % P
    g = 2 * a[3] * b[3] * D % P
    h = 2 * a[2] * b[2] % P
    return ((f - e) * (h - g) % P, (h + g) * (f + e) % P, (h - g) * (h + g) % P, (f - e) * (f + e) % P)


def multiply(scalar: int, point: Point) -> Point:
    """Add a point to itself `scalar` times."""
    result: Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = add(result, point)
        point = add(point, point)
        scalar >>= 1
    return result


def decompress(data: bytes) -> Point | None:
    """Return the point that 32 bytes stand for, or None where they stand for none."""
    y = int.from_bytes(data, "little")
    sign = y >> 255
    y &= (1 << 255) - 1
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * SQRT_MINUS_1 % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Say whether the 64 bytes of `signature` were made over `message` by the owner of the 32 bytes of `public`."""
    if len(public) != 32 or len(signature) != 64:
        return False
    base = decompress((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    a, r = decompress(public), decompress(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if base is None or a is None or r is None or s >= L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % L
    left, right = multiply(s, base), add(r, multiply(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


def opened(path: Path) -> BinaryIO:
    """Open a file of the medium for reading, and refuse what is none: a link would lead to files of this machine."""
    try:
        file = os.fdopen(os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        refuse(path, "is no ordinary file", MAKER)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        refuse(path, "is no ordinary file", MAKER)
    return file


def read(path: Path, longest: int = SHORT) -> bytes:
    """Return a file that is read whole, before it is known whose it is; refuse one of more than `longest` bytes."""
    with opened(path) as file:
        content = file.read(longest + 1) if os.fstat(file.fileno()).st_size <= longest else b""
        if max(os.fstat(file.fileno()).st_size, len(content)) > longest:
            refuse(path, "is longer than any of its kind", MAKER)
    return content


def public_key(path: Path, content: Callable[[Path], bytes] = Path.read_bytes) -> bytes:
    """Return the 32 bytes of the Ed25519 key in a PEM file, which the function reads and which holds nothing else."""
    try:
        # another program may read another one of two keys
        text = content(path).decode()
        body = re.fullmatch(r"\s*-----BEGIN PUBLIC KEY-----([^-]*)-----END PUBLIC KEY-----\s*", text)
        der = base64.b64decode("".join(body[1].split()), validate=True) if body else b""
    except (OSError, ValueError) as error:
        refuse(path, f"cannot be read: {error}", "give the penstock.pub of the bundle's maker")
    if not der.startswith(ED25519) or len(der) != len(ED25519) + 32:
        refuse(path, "not an Ed25519 public key", "give the penstock.pub of the bundle's maker")
    return der[len(ED25519) :]


def has(form: Any, value: Any) -> bool:
    """Say whether data has a form: a type, or a pattern of text.

    A list gives the form of each member, a pair those of each name and each value, a dict those of fields.
    """
    if isinstance(form, list):
        return isinstance(value, list) and all(has(form[0], one) for one in value)
    if isinstance(form, tuple):
        return isinstance(value, dict) and all(has(form[0], name) and has(form[1], value[name]) for name in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and all(has(part, value.get(name)) for name, part in form.items())
    return type(value) is form if isinstance(form, type) else isinstance(value, str) and bool(form.fullmatch(value))


# in how many files a statement stands: it is checked once, as that takes time
stated = functools.lru_cache(maxsize=None)(verify)


def chain(path: Path, *, whole: bool = True) -> tuple[list[bytes], list[Any]]:
    """Return the keys of a maker, the newest last, where there were others: each signed the next one; and how.

    What a site kept of a chain is not `whole`: it begins with the key that it knew first.
    """
    keys: list[bytes] = []
    try:
        found = json.loads(read(path, CHAIN_LONGEST).decode())
        rotations = found["rotations"]
        if found != {"document": "penstock keys", "rotations": rotations} or not isinstance(rotations, list):
            raise ValueError("it has other fields")
        if len(rotations) > ROTATIONS:
            refuse(path, f"names more than {ROTATIONS} keys", "ask its maker which key is theirs")
        if not all(has(ROTATION, said) and len(said) == len(ROTATION) for said in rotations):
            raise ValueError("a change of a key has other fields")
        for number, rotation in enumerate(rotations, 1 if whole or not rotations else rotations[0]["number"]):
            old, new = bytes.fromhex(rotation["old"]), bytes.fromhex(rotation["new"])
            words = ["penstock key rotation", number, rotation["date"], rotation["old"], rotation["new"], ""]
            signature = base64.b64decode(rotation["signature"], validate=True)
            follows = not keys or keys[-1] == old
            if rotation["number"] != number or not follows or new in [*keys, old]:
                refuse(path, "the chain of keys is broken", "do not use this bundle; ask its maker which key is theirs")
            if not stated(old, "\n".join(map(str, words)).encode(), signature):
                refuse(path, "the chain of keys is forged", "do not use this bundle; ask its maker which key is theirs")
            keys += [new] if keys else [old, new]
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        refuse(path, f"not a chain of keys: {error}", "do not use this bundle; ask its maker which key is theirs")
    return keys, rotations


def signed(bundle: Path, name: str, key: bytes, form: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return a signed file of the bundle, as it is and as data of a form, after its signature was checked."""
    path = bundle / name
    try:
        content = read(path, LONGEST)
        signature = base64.b64decode(read(bundle / f"{name}.sig").strip(), validate=True)
    except (OSError, binascii.Error) as error:
        refuse(bundle, f"the bundle is not whole: {error}", MAKER)
    if not verify(key, content, signature):
        refuse(bundle / f"{name}.sig", "the signature does not belong to the key", OTHER)
    try:
        found = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        refuse(path, f"is no JSON that can be read: {error}", OTHER)
    if not isinstance(found, dict) or found.get("schema") != 1:
        refuse(path, "is not of schema 1, which this is for", "use the bundle's own bootstrap.py")
    # a key of anybody's signs it so far, and people compare what is printed beside
    for word, part in form.items():
        if not has(part, found.get(word)):
            refuse(path, f"{word!r} is not as schema 1 has it", OTHER)
    return content, found


class Bundle:
    """A bundle, a delta or a medium; `carried` names the files that its folder must have."""

    def __init__(self, folder: Path) -> None:
        """Read the key that travels along and those that it replaced; `follows` says whether it is one to trust."""
        self.folder = folder
        for path in (folder / "blobs", folder / "blobs" / "sha256"):
            if path.is_symlink():
                refuse(path, "is a link", MAKER)
        # a medium may show something else when it is read again: what is pinned is what was checked
        self.key = public_key(folder / "penstock.pub", read)
        self.keys, self.rotations = chain(folder / "keys.json")
        if self.keys and self.keys[-1] != self.key:
            refuse(folder / "penstock.pub", "the signature does not belong to the newest of the maker's keys", OTHER)

    def read(self) -> None:
        """Read what the key signed, and check that it did."""
        content, self.listed = signed(self.folder, "bundle.json", self.key, LIST)
        self.identity = hashlib.sha256(content).hexdigest()
        end = self.listed.get("expires")
        if end and not (isinstance(end, str) and DAY.fullmatch(end[:10])):
            refuse(self.folder / "bundle.json", "the day on which the bundle ends is none", OTHER)
        self.sizes = {artifact["sha256"]: artifact["size"] for artifact in self.listed["artifacts"]}
        self.carried, self.medium = set(self.sizes), ""
        if (self.folder / "volume.json").exists():
            _, medium = signed(self.folder, "volume.json", self.key, MEDIUM)
            number, files = medium["number"], medium["files"]
            self.sizes.update((piece["sha256"], piece["size"]) for cut in medium["cut"].values() for piece in cut)
            self.carried = set(files[number - 1] if 0 < number <= len(files) else [""])
            if medium["bundle"] != self.identity or not self.carried <= set(self.sizes):
                refuse(self.folder / "volume.json", "belongs to another bundle", MAKER)
            self.medium = f"medium {number} of {len(files)} of "

    def follows(self, known: bytes) -> bool:
        """Say whether who trusts the key `known` may trust the bundle's: it is the same, or what replaced it."""
        return known == self.key or known in self.keys

    def after(self, known: bytes) -> list[bytes]:
        """Return the keys that replaced the key `known`, one after another."""
        return self.keys[self.keys.index(known) + 1 :] if known in self.keys else []

    def refuse_extra(self) -> None:
        """Refuse a folder with a file that nobody signed."""
        blobs = self.folder / "blobs" / "sha256"
        beside = {"bundle.json", "bundle.json.sig", "penstock.pub", "keys.json", "blobs"}
        beside |= {"volume.json", "volume.json.sig"} if self.medium else set()
        beside |= {*self.listed["installer"], *self.listed["attachments"]}
        extra = [path for path in self.folder.iterdir() if path.name not in beside]
        extra = [path for path in extra if path.is_symlink() or not OF_THE_DISC.fullmatch(path.name)]
        extra += [path for path in blobs.parent.iterdir() if path != blobs]
        extra += [path for path in blobs.iterdir() if path.name not in self.carried]
        if extra:
            refuse(min(extra), "is not in the bundle's list", f"do not use this bundle; {MAKER}")

    def check(self) -> int:
        """Read everything; return how many bytes were good. Nothing may be missing, changed or extra."""
        self.refuse_extra()
        for name, sha256 in {**self.listed["installer"], **self.listed["attachments"]}.items():
            copied(self.folder / name, None, sha256)
        for name in self.carried:
            copied(self.folder / "blobs" / "sha256" / name, None, name, self.sizes[name])
        return sum(self.sizes[name] for name in self.carried)


def pieces(source: BinaryIO, longest: float) -> Iterator[bytes]:
    """Read a file to its end, and no further than so many bytes."""
    while longest > 0:
        piece = source.read(int(min(1 << 20, longest)))
        if not piece:
            return
        yield piece
        longest -= len(piece)


def copied(path: Path, copy: Path | None, sha256: str, size: float = math.inf) -> None:
    """Read a file in pieces, and write it to `copy` where one is wanted; refuse where its hash is another.

    Of one that is longer than `size` no more than one byte more is read.
    """
    digest = hashlib.sha256()
    try:
        with opened(path) as source, (copy or Path(os.devnull)).open("wb") as target:
            for piece in pieces(source, size + 1):
                digest.update(piece)
                target.write(piece)
    except FileNotFoundError:
        refuse(path, "is missing", MAKER)
    except OSError as error:
        refuse(path, str(error.strerror), "free some space, or mend the medium")
    if digest.hexdigest() != sha256:
        refuse(path, "was changed", f"do not use this bundle; {MAKER}")


def fingerprint(key: bytes) -> str:
    """Return the name by which people compare keys."""
    return hashlib.sha256(key).hexdigest()


def trusted(bundle: Bundle, options: argparse.Namespace) -> dict[str, Any]:
    """Return how the bundle's key came to be trusted, as a site notes it; nothing where a check alone is wanted.

    Who was trusted before is trusted still: by the site's own pin, or by an earlier installation. A bundle by another
    key is refused, unless its maker's key is given and the other one given up.
    """
    name, where = fingerprint(bundle.key), bundle.folder / "penstock.pub"
    given = public_key(options.key) if options.key else None
    replaces = bool(given and options.replace_key)
    path = pin_of(options, given_up=replaces)
    pinned = public_key(path) if path else None
    if given and not bundle.follows(given):
        refuse(where, f"the signature does not belong to the key {fingerprint(given)}", OTHER)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    spoken = {"schema": 1, "fingerprint": name, "how": "key" if given else "first-use", "since": today}
    if path is None or pinned is None:
        if not (given or options.trust_first or options.verify_only):
            hint = "give the maker's key with --key; or compare this fingerprint with its maker's and say --trust-first"
            refuse(where, f"the bundle is signed by {name}, a key that this machine does not know", hint)
        return spoken if given or options.trust_first else {}
    given_up = earlier(path, given_up=replaces)
    before = [*given_up, fingerprint(pinned)]
    if replaces and pinned != bundle.key:
        return {**spoken, "instead_of": fingerprint(pinned), "before": before}
    again = pinned != bundle.key and {fingerprint(key) for key in bundle.after(pinned)} & set(given_up)
    if again or not bundle.follows(pinned):
        reason = f"this site trusts the key {fingerprint(pinned)}, and {name}, which signed the bundle"
        hint = f"{OTHER}; to trust another key instead give it with --key and say --replace-key"
        why = "was given up for it, or follows one that was" if again else "did not replace it"
        refuse(where, f"{reason}, {why}: the signature does not belong to the key", hint)
    noted = trust_of(path, given_up=replaces)
    if given and noted["how"] != "key":
        noted = {**noted, "how": "key", "since": today}
    if pinned != bundle.key:
        return {**noted, "fingerprint": name, "follows": fingerprint(pinned), "before": before}
    # what is replaced keeps no chain, which told of some of these
    return {**noted, "before": given_up} if replaces else noted


def pin_of(options: argparse.Namespace, *, given_up: bool = False) -> Path | None:
    """Return the file with the key that counts here: the site's own, unless an installation replaced that one since.

    It did so by its maker's own statements, or because an administrator gave it up. With `given_up` what is kept
    counts no more, so what is damaged there is none.
    """
    pins = [pin for pin in (options.root / "keys" / "bundle.pub", options.prefix / "bundle.pub") if pin.exists()]
    if given_up:
        pins = [pin for pin in pins if readable(pin)]
    return pins[1] if len(pins) == 2 and later(pins[1], pins[0], given_up) else pins[0] if pins else None


def readable(pin: Path) -> bool:
    """Say whether there is a key in the file."""
    try:
        return bool(public_key(pin))
    except RefusedError:
        return False


def later(one: Path, other: Path, given_up: bool) -> bool:
    """Say whether one key came after the other; the program asks the same.

    Whoever changes the key goes on from the one that counts, so of two that name each other the longer list is the
    later one; days decide between records of before lists were kept.
    """
    noted = [trust_of(pin, given_up) for pin in (one, other)]
    if noted[1]["fingerprint"] not in earlier(one, given_up):
        return False
    moments = [(len(each["before"]), str(each.get("since", ""))) for each in noted]
    return noted[0]["fingerprint"] not in earlier(other, given_up) or moments[0] > moments[1]


def earlier(pin: Path, given_up: bool) -> list[str]:
    """Return the fingerprints of the keys that were given up, or replaced, before the one in the file."""
    key = public_key(pin)
    noted: list[str] = trust_of(pin, given_up)["before"]
    try:
        keys, _ = chain(pin.with_name(CHAIN), whole=False)
    except RefusedError:
        if not given_up:
            raise
        keys = []
    followed = [fingerprint(one) for one in keys[:-1]] if keys and keys[-1] == key else []
    return [*noted, *(name for name in followed if name not in noted)]


def trust_of(pin: Path, given_up: bool) -> dict[str, Any]:
    """Return what is noted of the key in the file; with `given_up` what is damaged is nothing.

    A record comes before its key: where that was interrupted, it names the one that is there among those before.
    """
    path, name = pin.with_name(TRUST), fingerprint(public_key(pin))
    nothing = {"schema": 1, "fingerprint": name, "how": "unknown", "before": []}
    try:
        noted = json.loads(path.read_text())
        if isinstance(noted, dict):
            # records of before all were noted name the last one alone
            last_one = [noted["instead_of"]] if noted.get("instead_of") else []
            noted = {"schema": 1, "since": "", "before": last_one, **noted}
        if not has(RECORD, noted) or noted["schema"] != 1 or not has([HEX], replaced(noted)):
            raise ValueError("it has other fields")
    except FileNotFoundError:
        return nothing
    except IsADirectoryError:
        refuse(path, "is a folder, so nobody knows which keys were given up", FOLDER)
    except (ValueError, RecursionError) as error:
        if given_up:
            return nothing
        hint = "compare the key with its maker's; give it with --key and say --replace-key"
        refuse(path, f"damaged, so nobody knows which keys were given up: {error}", hint)
    if noted["fingerprint"] == name:
        return dict(noted)
    before = noted["before"]
    last = max((place for place, each in enumerate(before) if each == name), default=len(before))
    # what is said of a key holds for the one that replaced it by a signed statement
    kept = ("how", "since", "instead_of")
    said = {part: noted[part] for part in kept if part in noted} if noted.get("follows") == name else {}
    return {**nothing, **said, "before": before[:last]}


def replaced(noted: dict[str, Any]) -> list[Any]:
    """Return the keys in whose place one is trusted."""
    return [noted[name] for name in ("follows", "instead_of") if noted.get(name) is not None]


def kept_chain(bundle: Bundle, options: argparse.Namespace) -> list[Any]:
    """Return what led from the key that was known first to the bundle's; what a chain says of before is anybody's."""
    given = public_key(options.key) if options.key else None
    path = pin_of(options, given_up=bool(given and options.replace_key))
    keys: list[bytes] = []
    before: list[Any] = []
    if path is None or (given and options.replace_key):
        known = given or bundle.key
    else:
        known = public_key(path)
        keys, before = chain(path.with_name(CHAIN), whole=False)
        before = before[: keys.index(known)] if known in keys else []
    later = bundle.rotations[bundle.keys.index(known) :] if known in bundle.keys else []
    again = {rotation["old"] for rotation in before} & {rotation["new"] for rotation in later}
    if before and later and (again or later[0]["number"] != before[-1]["number"] + 1):
        refuse(bundle.folder / "keys.json", "the chain of keys is not the one that this machine knows", OTHER)
    return before + later


def pin(folder: Path, bundle: Bundle, trust: dict[str, Any], rotations: list[Any]) -> None:
    """Keep the key: the import of this bundle and of later ones expects the same maker.

    The record comes first, as it tells of the key that is still there too, and the key last.
    """
    keep(folder / TRUST, json.dumps(trust) + "\n")
    if rotations:
        keep(folder / CHAIN, json.dumps({"document": "penstock keys", "rotations": rotations}) + "\n")
    else:
        (folder / CHAIN).unlink(missing_ok=True)
    body = base64.b64encode(ED25519 + bundle.key).decode()
    keep(folder / "bundle.pub", f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")


def keep(path: Path, text: str) -> None:
    """Write what is new beside, and give it its name on the disk before anything else is written."""
    if path.exists() and path.read_bytes() == text.encode():
        return
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    beside.replace(path)
    os.sync()


def order(version: str) -> tuple[Any, ...]:
    """Return what orders versions as Python packages are ordered (PEP 440); what is none comes first."""
    version = version.lower()
    found = VERSION.fullmatch(version)
    if found is None:
        return ()

    def number(name: str) -> int:
        digits = re.findall(r"\d+", found[name] or "")
        return int(digits[-1]) if digits else 0

    release = [int(part) for part in found["release"].split(".")]
    while release and not release[-1]:
        release.pop()
    letter = re.search("[a-z]+", found["pre"] or "")
    pre = PRE[letter[0]] if letter else -1 if found["dev"] and not found["post"] else 3
    local = [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split("[-_.]", found["local"] or "")]
    ends = (number("post") if found["post"] else -1, number("dev") if found["dev"] else math.inf)
    return (number("epoch"), release, pre, number("pre"), *ends, local if found["local"] else [])


def refuse_older(bundle: Bundle, options: argparse.Namespace) -> None:
    """Stop where what is installed, or what the site ever took by the bundle's name, is newer than the bundle."""
    made, hint = (bundle.listed["version"], bundle.listed["created"]), "say --allow-rollback to go back"
    try:
        marks = json.loads((options.root / "newest.json").read_text())["newest"]
        mark = marks.get(bundle.listed["name"], {"version": "", "created": ""})
    except (FileNotFoundError, NotADirectoryError):
        mark = {"version": "", "created": ""}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        refuse(options.root / "newest.json", f"damaged: {error}", hint)
    if (order(mark["version"]), mark["created"]) > (order(made[0]), made[1]):
        refuse(bundle.folder, f"of {' '.join(made)}; this site took {mark['version']} {mark['created']} before", hint)
    mine = [a["version"] for a in bundle.listed["artifacts"] if (a["kind"], a["name"]) == ("python", "penstock")]
    for path in options.prefix.glob("lib/python3*/site-packages/penstock-*.dist-info"):
        version = path.name[len("penstock-") : -len(".dist-info")]
        if mine and order(version) > order(mine[0]):
            refuse(bundle.folder, f"brings penstock {mine[0]}, {version} is installed", hint)


def checked_wheels(bundle: Bundle, site: Path, folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Copy the wheels for this Python into `folder`, each hashed on the way; return them, and those that are nowhere.

    What a delta or a medium does not carry is taken from what the site holds already.
    """
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    offered = {target["name"]: str(target.get("python") or "") for target in bundle.listed["targets"]}
    targets = {name for name, python in offered.items() if python == version}
    if not targets:
        pythons = ", ".join(sorted(set(offered.values()) - {""}))
        refuse(bundle.folder, f"the bundle is for Python {pythons}, this machine has {version}", "use a bundle for it")
    wheels, lacking = {}, []
    for wheel in bundle.listed["artifacts"]:
        if wheel["kind"] != "python" or not targets & set(wheel["targets"]):
            continue
        path = bundle.folder / "blobs" / "sha256" / wheel["sha256"]
        if wheel["sha256"] not in bundle.carried:
            path = site / "blobs" / "sha256" / wheel["sha256"]
            if not path.exists():
                lacking.append(wheel["filename"])
                continue
        wheels[wheel["name"]] = folder / Path(wheel["filename"]).name
        copied(path, wheels[wheel["name"]], wheel["sha256"], wheel["size"])
    return wheels, lacking


def install(bundle: Bundle, site: Path, folder: Path) -> int:
    """Make a virtual environment in the empty `folder` and install Penstock in it; return how many wheels it had."""
    wheelhouse = folder / "wheels"
    wheelhouse.mkdir()
    wheels, lacking = checked_wheels(bundle, site, wheelhouse)
    hint, home = "use the full bundle, or the first medium of it", str(wheelhouse)
    for name in ("penstock", "pip"):
        if name not in wheels:
            refuse(bundle.folder, f"neither the bundle nor the site has {name}", hint)
    # nothing of the caller's folder, which may be the medium itself, and nothing of the caller's environment
    around: dict[str, Any] = {"cwd": folder, "env": {"PATH": "/usr/bin:/bin", "HOME": home, "LC_ALL": "C.UTF-8"}}
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)], check=True, **around)
    options = ["--no-index", "--no-cache-dir", "--disable-pip-version-check", "--quiet", "--find-links", home]
    version = next(a["version"] for a in bundle.listed["artifacts"] if (a["kind"], a["name"]) == ("python", "penstock"))
    wanted = [f"penstock[{EXTRAS}]=={version}", "pip"]
    # pip runs from its own wheel, as Python runs what lies in a zip file
    pip = [str(folder / "bin" / "python"), "-I", str(wheels["pip"] / "pip"), "--isolated", "install"]
    command = [*pip, *options, *wanted]
    if subprocess.run(command, check=not lacking, **around).returncode:
        refuse(bundle.folder, f"neither the bundle nor the site has all of {', '.join(lacking)}", hint)
    shutil.rmtree(wheelhouse)
    (folder / INSTALLED).write_text(f"{bundle.identity} {listed(folder)}")
    return len(wheels)


def records(folder: Path) -> list[Path]:
    """Return the lists of files that the packages installed in a virtual environment brought along."""
    return sorted(folder.glob("lib/python3*/site-packages/*.dist-info/RECORD"))


def listed(folder: Path) -> str:
    """Return the digest of all these lists: none is missing, and none says something else, where it is the same."""
    return hashlib.sha256(b"".join(record.read_bytes() for record in records(folder))).hexdigest()


def stands(prefix: Path, bundle: Bundle) -> bool:
    """Return whether this Python installed this bundle, and every file is as it was."""
    try:
        return (
            (prefix / INSTALLED).read_text() == f"{bundle.identity} {listed(prefix)}"
            and (prefix / "bin" / "python").resolve() == Path(sys.executable).resolve()
            and all(as_it_was(record) for record in records(prefix))
        )
    except OSError:
        return False


def as_it_was(record: Path) -> bool:
    """Return whether the files of an installed package have the hashes that its record has, where it has them."""
    for name, noted, _ in csv.reader(record.read_text().splitlines()):
        digest = hashlib.sha256((record.parent.parent / name).read_bytes()).digest() if noted else b""
        if noted and noted != f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}":
            return False
    return True


def switch(prefix: Path, folder: Path) -> None:
    """Let `prefix` lead to a finished environment in one step; what it led to before goes away."""
    old = prefix.resolve() if prefix.is_symlink() else prefix.with_name(f".{prefix.name}-old")
    if prefix.exists() and not prefix.is_symlink():
        prefix.rename(old)
    os.sync()
    link(prefix, Path(folder.name))
    shutil.rmtree(old, ignore_errors=True)


def link(path: Path, target: Path) -> None:
    """Make `path` a symbolic link to `target`; the switch is one step."""
    beside = path.with_name(f".{path.name}.new")
    path.parent.mkdir(parents=True, exist_ok=True)
    if beside.is_symlink():
        beside.unlink()
    beside.symlink_to(target)
    beside.replace(path)


def take(lock: TextIO) -> None:
    """Take the lock of the site, which a deploy holds to its end, and say in it who has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise BusyError(f"{lock.name}: a deploy or another installation is running ({lock.read().strip()})") from None
    lock.truncate(0)
    lock.write(f"pid {os.getpid()}, install.sh\n")
    lock.flush()


def run(options: argparse.Namespace) -> None:
    """Check the bundle, then install from it where that is wanted."""
    bundle = Bundle(options.bundle)
    trust = trusted(bundle, options)
    rotations = kept_chain(bundle, options)
    bundle.read()
    words = HOW[trust["how"]] if trust else "a key that this machine does not know: compare it with its maker's"
    print(fingerprint(bundle.key))
    print(f"is the key that signed {bundle.medium}{bundle.listed['name']} {bundle.listed['version']}, {words}")
    end = (bundle.listed.get("expires") or "")[:10]
    if end and end < time.strftime("%Y-%m-%d", time.gmtime()):
        print(f"warning: its time is over since {end}; ask its maker for a newer one", file=sys.stderr)
    if options.verify_only:
        print(f"whole: {len(bundle.carried)} files, {bundle.check()} bytes")
        return
    bundle.refuse_extra()
    if not options.allow_rollback:
        refuse_older(bundle, options)
    options.prefix.parent.mkdir(parents=True, exist_ok=True)
    options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (options.state / "lock").open("a+") as lock:
        take(lock)
        present = options.prefix.resolve()
        if stands(present, bundle):
            pin(present, bundle, trust, rotations)
            link(options.command, options.prefix / "bin" / "penstock")
            print(f"installed already: {options.command}")
            return
        for left in options.prefix.parent.glob(f".{options.prefix.name}-*"):
            if left.resolve() != present:
                shutil.rmtree(left)
        folder = Path(tempfile.mkdtemp(prefix=f".{options.prefix.name}-", dir=options.prefix.parent.absolute()))
        try:
            count = install(bundle, options.root, folder)
            pin(folder, bundle, trust, rotations)
            folder.chmod(0o755)
            switch(options.prefix, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        link(options.command, options.prefix / "bin" / "penstock")
    print(f"installed {options.command} from {count} checked packages")


def main() -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(description="Install penstock from this bundle.")
    parser.add_argument("--key", type=Path, help="public key that the bundle must be signed with, or that it replaced")
    parser.add_argument("--trust-first", action="store_true", help="trust the bundle's key, where none is trusted yet")
    parser.add_argument("--replace-key", action="store_true", help="trust --key instead of the one that is trusted")
    here = Path(__file__).resolve().parent
    parser.add_argument("--bundle", type=Path, default=here, help="the bundle; default: the one around this file")
    parser.add_argument("--allow-rollback", action="store_true", help="install an older bundle than what is there")
    parser.add_argument("--verify-only", action="store_true", help="check everything in the bundle and install nothing")
    parser.add_argument("--root", type=Path, default=Path("/var/lib/penstock/reservoir"), help="what the site holds")
    parser.add_argument("--state", type=Path, default=Path("/var/lib/penstock/site"), help="where deploys keep theirs")
    parser.add_argument("--prefix", type=Path, default=Path("/opt/penstock/site"), help="the virtual environment")
    parser.add_argument("--command", type=Path, default=Path("/usr/local/bin/penstock"), help="where the command goes")
    options = parser.parse_args()
    if sys.version_info[:2] < OLDEST_PYTHON and not options.verify_only:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        print(
            f"error: Penstock needs Python 3.11 or newer, this is {version}. Hint: run it with a newer one.",
            file=sys.stderr,
        )
        return 5
    try:
        run(options)
    except RefusedError as refusal:
        # a name on the medium may have any characters, and terminals act upon some
        said = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(refusal))
        print(f"error: {said}", file=sys.stderr)
        return 3
    except BusyError as busy:
        print(f"error: {busy}. Hint: wait until it has ended.", file=sys.stderr)
        return 7
    except subprocess.CalledProcessError as failed:
        print(f"error: {failed.cmd[0]} ended with code {failed.returncode}; see above.", file=sys.stderr)
        return 4
    except OSError as error:
        print(
            f"error: {error.filename or options.prefix}: {error.strerror}. Hint: run as root, with space on the disk.",
            file=sys.stderr,
        )
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
