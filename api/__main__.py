"""Commands of the control API, `python -m api COMMAND`.

They are serve, migrate, create-admin, register-images, replay, list-nodes and close-others. Their settings come from
the environment.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import structlog
import typer
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from api import settings as environment
from api.clock import now
from api.database import Database
from api.settings import Settings
from common import findings
from common.errors import InputError, PenstockError, Problem

T = TypeVar("T")

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)


@app.command()
def serve() -> None:
    """Serve the API until SIGTERM."""
    from api.console.app import add_console
    from api.endpoints.server import serve as run

    run(environment.load(), pages=add_console)


@app.command()
def migrate() -> None:
    """Bring the database schema to this version."""
    from api.migrations import schema

    _change(schema.migrate, check=False)


@app.command()
def create_admin(
    name: Annotated[str, typer.Option(help="Name of the administrator.")],
    *,
    change_at_first_login: Annotated[
        bool, typer.Option("--change-at-first-login", help="The password is only good for choosing another one.")
    ] = False,
) -> None:
    """Create an administrator; the password is read from standard input. An existing user is left as it is."""
    from api.auth.policy import UserRole
    from api.resources.users import service
    from api.resources.users.schemas import UserRequest

    password = sys.stdin.readline().rstrip("\n")

    async def create(database: Database) -> bool:
        async with database.reading() as db:
            if await service.find(db, name):
                return False
        try:
            request = UserRequest(
                name=name, password=password, role=UserRole.ADMIN, must_change_password=change_at_first_login
            )
        except ValidationError as error:
            raise InputError.of(
                [Problem(str(i["loc"][0]), findings.reason(i), findings.hint(i)) for i in error.errors()]
            ) from None

        async def act(db: AsyncSession) -> bool:
            await service.create(db, request)
            return True

        return await _told(database, "create-admin", f"users/{name}", act)

    _change(create)


@app.command()
def register_images(
    index: Annotated[Path, typer.Option(help="The reservoir's list of images (images/index.json).")],
    registry: Annotated[str, typer.Option(help="Registry that the nodes pull from, as HOST:PORT.")],
) -> None:
    """Register the images of a publication that sessions may use."""
    from api.resources.images import service

    try:
        published = json.loads(index.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"the list of images cannot be read: {error}", where=str(index), hint="name the right file"
        ) from error

    async def register(database: Database) -> bool:
        return await _told(
            database, "register-images", "images", lambda db: service.register(db, published, registry, str(index))
        )

    _change(register)


@app.command()
def replay(file: Annotated[Path, typer.Argument(help="A cycle of the scheduler that was saved.")]) -> None:
    """Decide a saved cycle of the scheduler again, print the decision, and say whether it is the one that was saved."""
    from api.scheduler import record
    from api.scheduler.decide import decide

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        hint = "name the file of a saved cycle"
        raise InputError(f"the cycle cannot be read: {error}", where=str(file), hint=hint) from error
    snapshot, saved = record.load(text, str(file))
    again = decide(snapshot)
    differences = record.differences(saved, again)
    for line in (*again.log, *differences):
        typer.echo(line)
    typer.echo("differs from the saved decision" if differences else "equal to the saved decision")
    if differences:
        raise typer.Exit(1)


@app.command()
def list_nodes() -> None:
    """Print the nodes as the API lists them; whoever may read the database needs no password for it."""
    from api.endpoints.nodes import MAX_PAGE
    from api.lists import nodes, texts
    from api.resources.groups import service as groups

    async def read(database: Database) -> str:
        async with database.reading() as db:
            by_node = await groups.by_node(db)
            found = await nodes.page(db, nodes.Filters(), by_node, limit=MAX_PAGE)
            render = partial(nodes.texts, db, by_node=by_node)
            answer = await texts.answer(found, texts.Texts(), render, None, page_bytes=sys.maxsize)
            return bytes(answer.body).decode()

    typer.echo(_with_database(read))


@app.command()
def close_others(
    workers: Annotated[list[str] | None, typer.Argument(metavar="NODE", help="Nodes that stay.")] = None,
    *,
    rehearse: Annotated[bool, typer.Option("--check", help="Close none; say what would be closed.")] = False,
) -> None:
    """Let all other nodes take nothing new, and print what runs on them."""
    from api.control import administration

    async def close(database: Database) -> list[dict[str, object]]:
        return await _told(
            *(database, "close-others", "nodes"),
            lambda db: administration.close_others(db, workers or (), check=rehearse),
            changes=lambda found: not rehearse and any(node["closed"] for node in found),
        )

    typer.echo(json.dumps(_with_database(close)))


def _change(action: Callable[[Database], Awaitable[bool]], *, check: bool = True) -> None:
    """Run an action on the database and print whether it changed anything."""
    typer.echo(json.dumps({"changed": _with_database(action, check=check)}))


async def _told(
    database: Database,
    command: str,
    subject: str,
    act: Callable[[AsyncSession], Awaitable[T]],
    changes: Callable[[T], bool] = bool,
) -> T:
    """Return what is done in one transaction with its line in the audit log, and leave none where nothing `changes`."""
    from api.resources.audit import lines, service

    method, at = "COMMAND", f"{now():%FT%T.%fZ}"
    entry = lines.by_itself(
        time=at, user=f"command:{command}", action=command.replace("-", "_"), method=method, object=subject, status=200
    )
    try:
        async with database.transaction() as db:
            if service.is_on(environment.load()):
                await service.begin(db, entry)
            done = await act(db)
            if not changes(done):
                raise _UnchangedError
    except _UnchangedError:
        pass
    return done


class _UnchangedError(Exception):
    """Nothing was changed, so the transaction is undone with its line."""


def _with_database(action: Callable[[Database], Awaitable[T]], *, check: bool = True) -> T:
    """Return what an action on the database returns; `check` refuses one with a schema of another version."""
    from api.migrations import schema

    loaded: Settings = environment.load()
    # Standard output has the answer and nothing else.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))

    async def run() -> T:
        database = Database(loaded.database_url)
        try:
            if check:
                await schema.check(database)
            return await action(database)
        finally:
            await database.close()

    return asyncio.run(run())


def main() -> None:
    """Run a command; an error of ours becomes its text and its exit code."""
    try:
        app(prog_name="python -m api")
    except PenstockError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
