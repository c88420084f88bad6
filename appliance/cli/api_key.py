"""API keys: how programs are known to the API without a password."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from appliance.cli import config, output
from appliance.cli.options import complete_users, given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import ApiKey, NewApiKey
from appliance.client.words import KeyScope
from common.errors import ConflictError, NotFoundError

app = group("Your API keys: list, create, revoke.")

UserOption = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", help="Of another user (administrators).", autocompletion=complete_users),
]


@app.command("list")
def list_keys(*, user: UserOption = None, form: FormatOption = Format.TABLE) -> None:
    """List the keys, without their secrets."""
    client = config.load().client
    output.show(client.users.api_keys(user) if user else client.api_keys.list(), form, _table)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Where the key is used.")],
    *,
    days: Annotated[int | None, typer.Option("--days", metavar="N", min=1, help="It ends after so many days.")] = None,
    scope: Annotated[
        KeyScope | None, typer.Option("--scope", help="To read, to work with sessions too, or for all (usual).")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a key and show it, this once; it ends no later than the one with which you are logged in."""
    output.show(config.load().client.api_keys.create(name=name, **given(days=days, scope=scope)), form, _secret)


@app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID|NAME", help="Its id or name, as `penstock apikey list` shows it.")],
    *,
    user: UserOption = None,
) -> None:
    """Make a key worth nothing, and all keys that were made with it."""
    client = config.load().client
    id_ = key if _is_id(key) else _id_of(key, client.users.api_keys(user) if user else client.api_keys.list())
    revoked = client.users.revoke_api_key(user, id_) if user else client.api_keys.delete(id_)
    print(f"Revoked {key}{output.with_it(revoked)}.")


def _is_id(key: str) -> bool:
    try:
        return bool(UUID(key))
    except ValueError:
        return False


def _id_of(name: str, keys: list[ApiKey]) -> str:
    """Return the id of the one key that has a name, or that id; raises PenstockError where none or several have."""
    found = [key["id"] for key in keys if name in (key["id"], key["name"])]
    if not found:
        raise NotFoundError(f"there is no API key {name}", where="key", hint="see `penstock apikey list`")
    if len(found) > 1:
        raise ConflictError(
            f"several API keys are called {name}: {', '.join(found)}", where="key", hint="name one by its id"
        )
    return found[0]


def _secret(key: NewApiKey) -> None:
    print(key["key"])


def _table(keys: list[ApiKey]) -> None:
    rows = [
        (
            key["id"],
            key["name"],
            key["prefix"],
            key["scope"],
            output.age(key["created_at"]),
            output.age(key["used_at"]) if key["used_at"] else "never",
            output.moment(key["expires_at"])[:10] or "never",
        )
        for key in keys
    ]
    output.print_table(("ID", "NAME", "BEGINS WITH", "SCOPE", "CREATED", "USED", "EXPIRES"), rows, below=("NAME",))
