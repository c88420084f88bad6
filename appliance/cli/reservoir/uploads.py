"""Commands about users' own packages: who may upload, and which published names uploads may have."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.reservoir.common import AsJson, Root, show
from common.errors import PenstockError
from reservoir.settings import DEFAULT_ROOT

SOCKET = Path("/run/penstock-index/index.sock")
PASSWORD = Path("/etc/penstock/index-password")

Package = Annotated[str, typer.Argument(help="The name of a Python package.", metavar="NAME")]
Account = Annotated[str, typer.Argument(help="The name of an account.", metavar="NAME")]
Owner = Annotated[str, typer.Argument(help="The name of an account.", metavar="ACCOUNT")]
Socket = Annotated[Path, typer.Option("--socket", help="Where the server of uploads listens.")]
Password = Annotated[Path, typer.Option("--password-file", help="The password of the server's administrator.")]


def told(names: list[str] | None) -> str:
    """Return a sentence about uploads that are hidden; nothing where there are none."""
    if not names:
        return ""
    return (
        f"uploads of these names are hidden, as the publication has them too: {', '.join(names)}; "
        "`penstock reservoir uploads allow NAME --owner ACCOUNT` shows both"
    )


def hidden(root: Path) -> list[str] | None:
    """Return the names of uploads that the publication hides; None where no server on this node can tell."""
    from reservoir.serving.uploads.names import Names
    from reservoir.serving.uploads.server import connect

    try:
        with connect(SOCKET, PASSWORD) as server:
            return Names(root).conflicts(server.uploaded())
    except PenstockError:
        return None


def allow_command(
    name: Package,
    owners: Annotated[list[str], typer.Option("--owner", metavar="ACCOUNT", help="Who may upload it; repeatable.")],
    *,
    root: Root = DEFAULT_ROOT,
    socket: Socket = SOCKET,
    password_file: Password = PASSWORD,
    as_json: AsJson = False,
) -> None:
    """Let accounts upload a name that the reservoir publishes; pip then sees both."""
    from reservoir.serving.uploads.names import Names, normal
    from reservoir.serving.uploads.server import ADMIN, connect

    with connect(socket, password_file) as server:
        _require_accounts(owners, server.accounts())
        others = sorted(server.uploaders(normal(name)) - {*owners, ADMIN})
    changed = Names(root).allow(name, owners)
    said = f"{', '.join(sorted(owners))} may upload {name}"
    if others:
        said += f"; warning: what {', '.join(others)} uploaded of it before stays hidden"
    show({"name": name, "owners": sorted(owners), "changed": changed, "hidden_of": others}, as_json, said)


def deny_command(name: Package, root: Root = DEFAULT_ROOT, as_json: AsJson = False) -> None:
    """Take back what `allow` did: uploads of that name are hidden again."""
    from reservoir.serving.uploads.names import Names

    Names(root).deny(name)
    show({"name": name, "changed": True}, as_json, f"{name} belongs to the publication alone")


def owner_add(
    name: Package,
    account: Owner,
    *,
    root: Root = DEFAULT_ROOT,
    socket: Socket = SOCKET,
    password_file: Password = PASSWORD,
    as_json: AsJson = False,
) -> None:
    """Let one more account upload under a name, which otherwise is its first uploader's."""
    _give(name, root=root, socket=socket, password_file=password_file, as_json=as_json, add={account})


def owner_remove(
    name: Package,
    account: Owner,
    *,
    root: Root = DEFAULT_ROOT,
    socket: Socket = SOCKET,
    password_file: Password = PASSWORD,
    as_json: AsJson = False,
) -> None:
    """Take a name away from an account; what it uploaded stays."""
    _give(name, root=root, socket=socket, password_file=password_file, as_json=as_json, remove={account})


def _give(
    name: str,
    *,
    root: Path,
    socket: Path,
    password_file: Path,
    as_json: bool,
    add: AbstractSet[str] = frozenset(),
    remove: AbstractSet[str] = frozenset(),
) -> None:
    from reservoir.serving.uploads.names import Names, normal
    from reservoir.serving.uploads.server import connect

    names = Names(root)
    with connect(socket, password_file) as server:
        known, first = server.accounts(), server.first_uploader(normal(name))
    _require_accounts(add, known)
    owners = ({*names.owners(name)} or {first} - {""}) - remove | add
    changed = names.give(name, owners)
    said = f"{name} belongs to {', '.join(sorted(owners))}"
    show({"name": name, "owners": sorted(owners), "changed": changed}, as_json, said)


def _require_accounts(wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raise NotFoundError where an account is not among those that there are."""
    from common.errors import NotFoundError

    if strangers := {*wanted} - {*known}:
        raise NotFoundError(
            "there is no such account", where=min(strangers), hint="look at `penstock reservoir uploads list`"
        )


def list_command(
    root: Root = DEFAULT_ROOT, socket: Socket = SOCKET, password_file: Password = PASSWORD, as_json: AsJson = False
) -> None:
    """Show accounts, uploaded packages, and names that uploads and the publication both have."""
    from reservoir.serving.uploads.names import Names
    from reservoir.serving.uploads.server import connect

    names = Names(root)
    with connect(socket, password_file) as server:
        accounts, uploaded = server.accounts(), server.uploaded()
    lists = {
        "accounts": accounts,
        "packages": uploaded,
        "hidden": names.conflicts(uploaded),
        "allowed": names.allowed(),
    }
    show(lists, as_json, "\n".join(f"{title:<9} {', '.join(found) or '-'}" for title, found in lists.items()))


def account_add(
    name: Account,
    *,
    with_packages: Annotated[
        bool, typer.Option("--with-packages", help="Give it the packages of a removed account of that name.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    socket: Socket = SOCKET,
    password_file: Password = PASSWORD,
    as_json: AsJson = False,
) -> None:
    """Make an account that may upload, and print its password, which is kept nowhere else."""
    from common.errors import ConflictError
    from reservoir.serving.uploads.names import Names
    from reservoir.serving.uploads.server import connect

    with connect(socket, password_file) as server:
        left = [] if with_packages or name in server.accounts() else server.belongings(name, Names(root))
        if left:
            raise ConflictError(
                f"an account of this name was removed, and {', '.join(left)} would belong to the new one",
                where=name,
                hint="choose another name, or say --with-packages where it is for the same person",
            )
        password = server.add_account(name)
    show({"account": name, "password": password, "changed": True}, as_json, f"{name} / {password}")


def account_remove(
    name: Account, socket: Socket = SOCKET, password_file: Password = PASSWORD, as_json: AsJson = False
) -> None:
    """Remove an account; what it uploaded stays."""
    from reservoir.serving.uploads.server import connect

    with connect(socket, password_file) as server:
        server.remove_account(name)
    show({"account": name, "changed": True}, as_json, f"{name} may upload no more")


def prepare_command(
    simple: Annotated[str, typer.Option("--simple", metavar="URL", help="The simple index of the publication.")],
    socket: Socket = SOCKET,
    password_file: Password = PASSWORD,
    as_json: AsJson = False,
) -> None:
    """Make the index of users' packages on top of the publication; `penstock site deploy` runs this."""
    from reservoir.serving.uploads.server import INDEX, connect

    with connect(socket, password_file) as server:
        changed = server.prepare(simple)
    show({"index": INDEX, "changed": changed}, as_json, f"{INDEX} {'is ready now' if changed else 'was ready already'}")
