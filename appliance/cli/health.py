"""Health on the command line: the history of checks, and what people say of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from appliance.cli import config, output, parse
from appliance.cli.options import complete_nodes, group
from appliance.cli.output import Format, FormatOption
from appliance.client import Client
from appliance.client.views import Check, CheckChange
from common.errors import InputError, NotFoundError

app = group("Checks of nodes and of the site (administrators): history, acknowledge, clear. See also `doctor`.")

HEAD = ("TIME", "NODE", "CHECK", "OF", "BEFORE", "AFTER", "SEEN")

NodeOption = Annotated[
    str, typer.Option("--node", metavar="NAME", help="The node; none: the site.", autocompletion=complete_nodes)
]
OfOption = Annotated[str | None, typer.Option("--of", metavar="THING", help="What of it, such as a GPU or a folder.")]
CheckArgument = Annotated[str, typer.Argument(metavar="CHECK", help="Such as disk or gpu.xid.")]


@app.command("history")
def history(
    *,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Only of it.", autocompletion=complete_nodes)
    ] = None,
    check: Annotated[str | None, typer.Option("--check", help="Only of this check.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many at most.")] = 100,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show how checks have changed, the newest first."""
    output.show(config.load().client.health.changes(node=node, check=check, most=limit), form, _history)


@app.command("acknowledge")
def acknowledge(
    check: CheckArgument,
    *,
    node: NodeOption = "",
    of: OfOption = None,
    lasts: Annotated[str, typer.Option("--for", metavar="8h", help="For so long nobody is told of it.")] = "8h",
    comment: Annotated[str, typer.Option("--comment", help="Why.")] = "",
    form: FormatOption = Format.TABLE,
) -> None:
    """Tell nobody of a check for a while; a node that it closes stays closed."""
    until = datetime.now(UTC) + timedelta(seconds=parse.duration(lasts, "--for"))
    client = config.load().client
    done = client.health.acknowledge(_find(client, node, check, of)["id"], until=until.isoformat(), comment=comment)
    output.show(done, form, lambda _: print(f"Nobody is told of {check} until {output.moment(until.isoformat())}."))


@app.command("clear")
def clear(
    check: CheckArgument, *, node: NodeOption = "", of: OfOption = None, form: FormatOption = Format.TABLE
) -> None:
    """Let a check count as well until what it tells of occurs anew: it was looked after."""
    client = config.load().client
    done = client.health.clear(_find(client, node, check, of)["id"])
    output.show(done, form, lambda _: print(f"{check} is {done['state']}: {done['evidence']}"))


def _find(client: Client, node: str, check: str, of: str | None) -> Check:
    """Return the one check that is meant; raises NotFoundError, and InputError where it could be several."""
    found = [each for each in client.health.checks(node=node) if each["check"] == check and of in (None, each["thing"])]
    if not found:
        raise NotFoundError(
            f"{node or 'the site'} has no check {check}", where="check", hint="see `penstock doctor --all`"
        )
    if len(found) > 1:
        things = ", ".join(each["thing"] for each in found)
        raise InputError(f"there are {len(found)} of it", where="--of", hint=f"name one of {things}")
    return found[0]


def _history(found: list[CheckChange]) -> None:
    rows = [
        (
            output.moment(one["at"]),
            one["node"] or "site",
            one["check"],
            one["thing"] or "-",
            one["before"] or "-",
            one["after"],
            one["evidence"],
        )
        for one in found
    ]
    output.print_table(HEAD, rows, ("SEEN",))
