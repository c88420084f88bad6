"""Install Penstock from the bundle around this file, with Python's standard library only.

The signature of the list and the hash of every package are checked before anything of the bundle runs.
The code is self-contained on purpose: it stands where nothing is installed yet.
"""

import argparse
import base64
import binascii
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

Point = tuple[int, int, int, int]

EXTRAS = "reservoir,site"


class RefusedError(Exception):
    """The bundle or this machine does not let the installation go on."""


def refuse(where: Path, reason: str, cure: str) -> NoReturn:
    """Stop with what is wrong and what to do about it."""
    raise RefusedError(f"{where}: {reason}. Cure: {cure}.")


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


def public_key(path: Path) -> bytes:
    """Return the 32 bytes of the Ed25519 key in a PEM file."""
    try:
        body = re.search(r"-----BEGIN PUBLIC KEY-----(.*)-----END PUBLIC KEY-----", path.read_text(), re.DOTALL)
        der = base64.b64decode("".join(body[1].split()), validate=True) if body else b""
    except (OSError, ValueError) as error:
        refuse(path, f"cannot be read: {error}", "give the penstock.pub of the bundle's maker")
    # what stands in front of the 32 bytes of every Ed25519 key
    prefix = bytes.fromhex("302a300506032b6570032100")
    if not der.startswith(prefix) or len(der) != len(prefix) + 32:
        refuse(path, "not an Ed25519 public key", "give the penstock.pub of the bundle's maker")
    return der[len(prefix) :]


def signed_list(bundle: Path, key: bytes) -> dict[str, Any]:
    """Return the bundle's list after its signature was checked."""
    try:
        content = (bundle / "bundle.json").read_bytes()
        signature = base64.b64decode((bundle / "bundle.json.sig").read_bytes().strip(), validate=True)
    except (OSError, binascii.Error) as error:
        refuse(bundle, f"the bundle is not whole: {error}", "get it again from its maker")
    if not verify(key, content, signature):
        refuse(
            bundle / "bundle.json.sig",
            "the signature does not belong to the key",
            "do not use this bundle; get it again from its maker, or check which key is theirs",
        )
    listed: dict[str, Any] = json.loads(content)
    return listed


def checked_wheels(bundle: Path, listed: dict[str, Any], folder: Path) -> dict[str, Path]:
    """Copy the wheels for this Python into `folder` under their names, each hashed on the way."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    targets = [target["name"] for target in listed["targets"] if target["python"] == version]
    if not targets:
        offered = ", ".join(sorted({target["python"] for target in listed["targets"]}))
        refuse(bundle, f"the bundle is for Python {offered}, this machine has {version}", "use a bundle for it")
    wheels = [a for a in listed["artifacts"] if a["kind"] == "python" and set(a["targets"]) & set(targets)]
    for wheel in wheels:
        path = bundle / "blobs" / "sha256" / wheel["sha256"]
        digest = hashlib.sha256()
        try:
            with path.open("rb") as source, (folder / Path(wheel["filename"]).name).open("wb") as copy:
                while piece := source.read(1 << 20):
                    digest.update(piece)
                    copy.write(piece)
        except FileNotFoundError:
            refuse(path, f"{wheel['filename']} is missing", "get the bundle again")
        except OSError as error:
            refuse(path, f"{wheel['filename']}: {error.strerror}", "free some space, or mend the medium")
        if digest.hexdigest() != wheel["sha256"]:
            refuse(path, f"{wheel['filename']} was changed", "do not use this bundle; get it again from its maker")
    return {wheel["name"]: folder / wheel["filename"] for wheel in wheels}


def install(wheels: dict[str, Path], folder: Path, prefix: Path, version: str) -> None:
    """Make the virtual environment at `prefix` and install Penstock in it from the wheels in `folder`."""
    if "pip" not in wheels:
        refuse(folder, "the bundle has no pip", "use a bundle of the product")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", prefix], check=True)
    python = prefix / "bin" / "python"
    # pip runs from its own wheel, which a zip file on the path allows
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(wheels["pip"]), "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    options = ["--no-index", "--no-cache-dir", "--disable-pip-version-check", "--quiet", "--find-links", str(folder)]
    wanted = [f"penstock[{EXTRAS}]=={version}", "pip"]
    subprocess.run([python, "-m", "pip", "--isolated", "install", *options, *wanted], check=True, env=environment)


def link(prefix: Path, target: Path) -> None:
    """Point the command at `target` to the virtual environment; the switch is one step."""
    beside = target.with_name(f".{target.name}.new")
    beside.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside.symlink_to(prefix / "bin" / "penstock")
    beside.replace(target)


def main() -> int:
    """Check, then install; return the exit code."""
    parser = argparse.ArgumentParser(description="Install penstock from this bundle.")
    parser.add_argument("--key", type=Path, help="public key that the bundle must be signed with")
    parser.add_argument(
        "--prefix", type=Path, default=Path("/opt/penstock/site"), help="folder of the virtual environment"
    )
    parser.add_argument("--command", type=Path, default=Path("/usr/local/bin/penstock"), help="where the command goes")
    options = parser.parse_args()
    bundle = Path(__file__).resolve().parent
    key = public_key(options.key or bundle / "penstock.pub")
    listed = signed_list(bundle, key)
    name = hashlib.sha256(key).hexdigest()
    how = "given by --key" if options.key else "from the bundle itself: compare it with its maker's"
    print(f"{listed['name']} {listed['version']}, signed by {name} ({how})")
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    try:
        wheels = checked_wheels(bundle, listed, folder)
        if "penstock" not in wheels:
            refuse(bundle, "the bundle has no penstock", "use a bundle of the product")
        version = next(a["version"] for a in listed["artifacts"] if a["kind"] == "python" and a["name"] == "penstock")
        install(wheels, folder, options.prefix, version)
        if options.key:
            # the import of this bundle and of later ones expects the same maker
            shutil.copyfile(options.key, options.prefix / "bundle.pub")
        link(options.prefix, options.command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"installed {options.command} from {len(wheels)} checked packages")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RefusedError as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        sys.exit(3)
    except subprocess.CalledProcessError as failed:
        print(f"error: {failed.cmd[0]} ended with code {failed.returncode}; see above.", file=sys.stderr)
        sys.exit(4)
