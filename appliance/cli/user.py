"""Users, for administrators."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from appliance.cli import config, output
from appliance.cli.account import PasswordStdin, read_password
from appliance.cli.options import complete_users, given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import User
from appliance.client.words import UserRole, UserSource

app = group("Users: list, create, update, disable, delete, passwords.")

NONE = "none"

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.", autocompletion=complete_users)]
DomainOption = Annotated[str | None, typer.Option("--domain", metavar="NAME|none", help="Only of this domain.")]
PolicyOption = Annotated[str | None, typer.Option("--policy", metavar="NAME|none", help="The policy that limits them.")]
EmailOption = Annotated[str | None, typer.Option("--email", metavar="ADDRESS|none", help="Where mail reaches them.")]


@app.command("list")
def list_users(form: FormatOption = Format.TABLE) -> None:
    """List the users whom you look after."""
    output.show(config.load().client.users.list(), form, _table)


@app.command("get")
def get(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Show one user."""
    output.show(config.load().client.users.get(name), form, _fields)


@app.command("create")
def create(
    name: NameArgument,
    *,
    role: Annotated[UserRole, typer.Option("--role", help="What the user may do.")] = "member",
    domain: DomainOption = None,
    policy: PolicyOption = None,
    email: EmailOption = None,
    must_change_password: Annotated[
        bool | None, typer.Option("--must-change-password", help="The user has to choose another password first.")
    ] = None,
    password_stdin: PasswordStdin = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create a user."""
    client = config.load().client
    options = given(domain=domain, policy=policy, email=email, must_change_password=must_change_password)
    password = read_password(password_stdin, confirm=True)
    user = client.users.create(name=name, password=password, role=role, **options)
    output.show(user, form, lambda _: print(f"Created {user['role']} {user['name']}."))


@app.command("update")
def update(
    name: NameArgument,
    *,
    role: Annotated[UserRole | None, typer.Option("--role", help="What the user may do.")] = None,
    domain: DomainOption = None,
    policy: PolicyOption = None,
    email: EmailOption = None,
    role_source: Annotated[
        UserSource | None, typer.Option("--role-source", help="Who gives the role: you (local), or the directory.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change a user's role, domain, policy or address; what is left out stays, `none` takes away.

    A role that you give is not changed by the directory any more.
    """
    chosen = given(role=role, domain=domain, policy=policy, email=email, role_source=role_source)
    changes: dict[str, Any] = {key: None if value == NONE else value for key, value in chosen.items()}
    output.show(config.load().client.users.update(name, **changes), form, _fields)


@app.command("disable")
def disable(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Let a user sign in no more; sessions go on."""
    user = config.load().client.users.update(name, disabled=True)
    output.show(user, form, lambda _: print(f"User {name} is disabled."))


@app.command("enable")
def enable(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Let a user sign in again."""
    user = config.load().client.users.update(name, disabled=False)
    output.show(user, form, lambda _: print(f"User {name} is enabled."))


@app.command("unbind")
def unbind(name: NameArgument, form: FormatOption = Format.TABLE) -> None:
    """Give an account to whoever signs in next by its name in the directory; logins end and keys are revoked."""
    user = config.load().client.users.update(name, directory_id=None)
    output.show(user, form, lambda _: print(f"The account {name} belongs to the next who signs in by this name."))


@app.command("password")
def password(name: NameArgument, *, password_stdin: PasswordStdin = False) -> None:
    """Set a user's password; the user's logins end and keys are revoked."""
    client = config.load().client
    client.users.set_password(name, read_password(password_stdin, confirm=True))
    print(f"The password of {name} is set.")


@app.command("logout")
def log_out(name: NameArgument) -> None:
    """Sign a user out everywhere; keys stay."""
    config.load().client.users.end_logins(name)
    print(f"User {name} is signed out.")


@app.command("delete")
def delete(name: NameArgument) -> None:
    """Delete a user who has no live session."""
    config.load().client.users.delete(name)
    print(f"Deleted user {name}.")


def _table(users: list[User]) -> None:
    rows = [
        (
            user["name"],
            user["role"],
            user["domain"] or "-",
            user["policy"] or "-",
            "disabled" if user["disabled"] else "active",
            output.age(user["created_at"]),
        )
        for user in users
    ]
    output.print_table(("NAME", "ROLE", "DOMAIN", "POLICY", "STATUS", "CREATED"), rows)


def _fields(user: User) -> None:
    output.print_fields(
        (
            ("Name", user["name"]),
            ("Role", user["role"]),
            ("Domain", user["domain"] or ""),
            ("Policy", user["policy"] or ""),
            ("E-mail", user["email"] or ""),
            ("Role given by", user["role_source"]),
            ("Signs in by", user["source"]),
            ("Directory entry", user["directory_id"] or ""),
            ("Status", "disabled" if user["disabled"] else "active"),
            ("Password", "has to be changed" if user["must_change_password"] else ""),
            ("Created", output.moment(user["created_at"])),
        )
    )
