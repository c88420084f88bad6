"""Doctor: what is not well at the site, and what to do about it, also where the control API does not answer."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli import config, output
from appliance.cli.options import HELP, complete_nodes
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Check
from common import checks
from common.checks import CheckState
from common.errors import PenstockError, UnauthenticatedError, UnavailableError

if TYPE_CHECKING:
    from appliance.site.sizing import Size

HEAD = ("STATE", "NODE", "CHECK", "OF", "SINCE", "SEEN")
ANSWER_S = 10.0
"""How long the control API may take."""
API = "control API answers"
MOST = 20
"""So many checks of a node that are not well are shown where those of all nodes are, the worst first."""
WORST_FIRST = ("fail", "unknown", "warn")


app = typer.Typer(invoke_without_command=True, add_completion=False, rich_markup_mode=None, context_settings=HELP)


@app.callback()
def doctor(
    context: typer.Context,
    *,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME", help="Only this node's checks.", autocompletion=complete_nodes),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show what is well, too.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say what is not well at the site, since when, and which repair is for it; exit with 1 where something fails.

    Where the control API does not answer, it says what can be seen from here.
    """
    if context.invoked_subcommand is not None:
        return
    login = config.load()
    try:
        found = login.connect(ANSWER_S).health.checks(node=node)
    except (UnavailableError, UnauthenticatedError) as error:
        check = _from_here(error)
        _show_seen(check, form)
        raise typer.Exit(1) from None
    shown = [check for check in found if every or check["state"] != "ok"]
    most = len(found) if every or node is not None else MOST
    output.show(shown, form, lambda told: _table(told, len(found), most))
    if any(check["state"] == "fail" for check in found):
        raise typer.Exit(1)


@app.command()
def sizing(
    *,
    recommended: Annotated[
        bool, typer.Option("--recommended", help="Tell what is best for speed, twice as much.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Tell what each service needs, and of which this machine has too little. Asks nobody."""
    from appliance.site import sizing as sizes

    cores = len(os.sched_getaffinity(0))
    memory_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    factor = sizes.RECOMMENDED if recommended else 1
    rows = [(size.times(factor), sizes.lacking(size.times(factor), cores, memory_mib)) for size in sizes.SIZES]
    told = {
        "machine": {"cores": cores, "memory_mib": memory_mib},
        "services": [asdict(size) | {"lacking": lacking} for size, lacking in rows],
    }
    output.show(told, form, lambda _: _print_sizes(rows, cores, memory_mib))


def _print_sizes(rows: list[tuple[Size, str]], cores: int, memory_mib: int) -> None:
    head = ("SERVICE", "ROLE", "CORES", "MEMORY", "DISK", "THIS MACHINE", "NOTE")
    cells = [
        (
            size.service,
            size.role or "-",
            str(size.cores or "-"),
            f"{size.memory_gib} GiB" if size.memory_gib else "-",
            f"{size.disk_gib} GiB" if size.disk_gib else "-",
            f"has {lacking}" if lacking else "enough",
            size.note or "-",
        )
        for size, lacking in rows
    ]
    output.print_table(head, cells, ("NOTE",))
    print(f"This machine has {cores} cores and {memory_mib / 1024:.1f} GiB memory. Services of one machine add up.")


def _from_here(error: PenstockError) -> checks.Check:
    """Return what an answer that did not come says, and the first repair to try."""
    problem = error.problems[0]
    # nothing listens or the edge has nobody behind it: 5-A brings back what people reach, 5-B and 5-C what is behind it
    repair = "" if isinstance(error, UnauthenticatedError) else "5-B" if "status 50" in problem.reason else "5-A"
    return checks.Check("api", API, CheckState.FAIL, problem.reason, problem.hint, problem.where, repair)


def _show_seen(check: checks.Check, form: Format) -> None:
    if form is Format.JSON:
        print(
            json.dumps(
                [
                    {
                        "check": check.id,
                        "node": "",
                        "thing": check.subject,
                        "name": check.name,
                        "state": check.state,
                        "evidence": check.evidence,
                        "hint": check.hint,
                        "repair": check.repair,
                    }
                ]
            )
        )
        return
    output.print_table(HEAD, [("fail", "site", check.id, check.subject, "-", check.evidence)])
    _advise([(check.id, check.hint, check.repair)])
    print("What the nodes say of themselves is known when it answers; `penstock site verify` asks them without it.")


def _table(found: list[Check], total: int, most: int) -> None:
    """Print checks of `total`, of each node so many at most; no node hides by many what is wrong with others."""
    bad = sum(check["state"] != "ok" for check in found)
    found, left_out = _bounded(found, most)
    rows = [
        (
            check["state"] + (" (acknowledged)" if check["acknowledged_until"] else ""),
            check["node"] or "site",
            check["check"],
            check["thing"] or "-",
            output.age(check["since"]),
            check["evidence"] + (", takes nothing new" if check["closes"] else ""),
        )
        for check in found
    ]
    if rows:
        output.print_table(HEAD, rows, ("OF", "SEEN"))
    _advise((check["check"], check["hint"], check["repair"]) for check in found if check["state"] != "ok")
    for node, number in left_out.items():
        print(output.plain(f"{node}: {number} more are not well: `penstock doctor --node {node}` shows them."))
    print(f"{total - bad} of {total} checks are well.")


def _bounded(found: list[Check], most: int) -> tuple[list[Check], dict[str, int]]:
    """Return of each node the worst checks, and how many more those have that have more; all of the site itself."""
    nodes: defaultdict[str, list[Check]] = defaultdict(list)
    for check in found:
        nodes[check["node"]].append(check)
    left_out = {node: len(own) - most for node, own in nodes.items() if node and len(own) > most}
    for node in left_out:
        nodes[node] = sorted(nodes[node], key=lambda check: WORST_FIRST.index(check["state"]))[:most]
    return list(chain.from_iterable(nodes.values())), left_out


def _advise(found: Iterable[tuple[str, str, str]]) -> None:
    """Say once of each kind of check what to do."""
    for check, hint, repair in dict.fromkeys(found):
        if hint:
            print(output.plain(f"{check}: {hint}"))
        if repair:
            print(output.plain(f"{check}: `penstock repair run {repair}`"))
