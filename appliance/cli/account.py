"""Logins of the command line: in and out."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from appliance.cli import config, output
from appliance.cli.files import read_text
from appliance.client import Client
from appliance.client.words import Language
from common.errors import InputError, NotFoundError, PenstockError, UnauthenticatedError

PasswordStdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the control API: https://MASTER:56789")],
    user: Annotated[str, typer.Option("--user", "-u", metavar="NAME", help="Your name.")],
    *,
    password_stdin: PasswordStdin = False,
    ca: Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="The site's certificate (PEM).")] = None,
) -> None:
    """Log in to a control API and remember it: a key is made, the password is not kept.

    Where a password that was given to you has to be replaced, --password-stdin takes yours from the next line.
    """
    client = Client(url, ca=read_text(ca) if ca else "")
    client.tls()
    before = _before()
    signed_in = client.account.log_in(user, read_password(password_stdin, confirm=False))
    if signed_in["must_change_password"]:
        print("The password that you were given has to be replaced by one of your own.", file=sys.stderr)
        client.account.replace_password(read_password(password_stdin, confirm=True))
    key = client.api_keys.create(name=f"penstock on {os.uname().nodename}"[:64])
    client.account.log_out()
    same_site = before is not None and before.url == client.url
    config.save(
        config.Config(client.url, key["key"], key["id"], client.ca, before.project if before and same_site else "")
    )
    if before and same_site:
        _try_to_revoke(replace(before, ca=client.ca), unless_needed=True)
    print(f"Logged in to {client.url} as {user}.")


def logout() -> None:
    """Forget the control API and revoke the key for it, with all keys that were made with that one."""
    remembered = config.load()
    with_it = _try_to_revoke(remembered)
    config.forget()
    print(f"Logged out of {remembered.url}{with_it}.")


def language(
    name: Annotated[str, typer.Argument(metavar="LANGUAGE", help="en, ko, ja, zh or th; auto: that of the browser.")],
) -> None:
    """Choose the language in which the console speaks to you."""
    if name != "auto" and name not in get_args(Language):
        raise InputError(
            f"the console does not speak {name}",
            where="LANGUAGE",
            hint=f"choose {', '.join(get_args(Language))} or auto",
        )
    config.load().client.account.speak(None if name == "auto" else cast("Language", name))
    print("The console speaks the language of your browser." if name == "auto" else f"The console speaks {name}.")


def read_password(from_stdin: bool, *, confirm: bool) -> str:
    """Return a password from standard input, or from the terminal without showing it."""
    if from_stdin:
        password = sys.stdin.readline().rstrip("\n")
    elif sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=confirm))
    else:
        password = ""
    if password:
        return password
    raise InputError("no password was given", where="password", hint="type it, or pipe it in with --password-stdin")


def _before() -> config.Config | None:
    # a login that cannot be read is about to be replaced
    try:
        return config.find()
    except InputError:
        return None


def _try_to_revoke(remembered: config.Config, *, unless_needed: bool = False) -> str:
    """Revoke the key of a login, perhaps not one that has made others; return what to say of those that went, too."""
    keys = remembered.client.api_keys
    try:
        if unless_needed and any(key["made_by"] == remembered.key_id for key in keys.list()):
            hint = f"`penstock apikey revoke {remembered.key_id}` ends them all"
            print(f"The key of the login before stays, for others were made with it: {hint}.", file=sys.stderr)
        else:
            return output.with_it(keys.delete(remembered.key_id))
    except (UnauthenticatedError, NotFoundError):
        # a key that is not valid any more needs no revoking
        pass
    except PenstockError as error:
        print(f"warning: the key could not be revoked: {error}", file=sys.stderr)
    return ""
