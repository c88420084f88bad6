"""Users; administrators only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from appliance.cli import config, output
from appliance.cli.account import PasswordStdin, read_password
from appliance.cli.output import Format, FormatOption
from appliance.client import User, segment

app = typer.Typer(no_args_is_help=True, help="Users: list, create, delete, set a password.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


class Role(StrEnum):
    """What a user may do."""

    MEMBER = "member"
    ADMIN = "admin"


@app.command("list")
def list_users(form: FormatOption = Format.TABLE) -> None:
    """List all users."""
    users: list[User] = config.load().client.get("/users")
    if form is Format.JSON:
        output.print_json(users)
        return
    rows = [(user["name"], user["role"], output.age(user["created_at"])) for user in users]
    output.print_table(("NAME", "ROLE", "CREATED"), rows)


@app.command("create")
def create(
    name: NameArgument,
    *,
    role: Annotated[Role, typer.Option("--role", help="What the user may do.")] = Role.MEMBER,
    password_stdin: PasswordStdin = False,
) -> None:
    """Create a user."""
    client = config.load().client
    body = {"name": name, "password": read_password(password_stdin, confirm=True), "role": role.value}
    user: User = client.call("POST", "/users", body)
    print(f"Created {user['role']} {user['name']}.")


@app.command("delete")
def delete(name: NameArgument) -> None:
    """Delete a user who has no live session."""
    config.load().client.call("DELETE", f"/users/{segment(name)}")
    print(f"Deleted user {name}.")


@app.command("password")
def password(name: NameArgument, *, password_stdin: PasswordStdin = False) -> None:
    """Set a user's password."""
    client = config.load().client
    body = {"password": read_password(password_stdin, confirm=True)}
    client.call("PUT", f"/users/{segment(name)}/password", body)
    print(f"The password of {name} is set.")
