"""`penstock repair`: ladders for known issues, run on the controller of the site."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.options import group
from appliance.cli.output import Format, FormatOption, print_json, print_table, show
from common import repairs
from common.errors import ProcessError
from common.repairs import GOOD, OPEN, RUNGS, Repair

if TYPE_CHECKING:
    from appliance.site.repair.record import Record, Step

STEP_S = 1.0
"""So often the API is asked how a run goes on."""

app = group("Repairs of known issues: list, show, run, history, cancel.")

RepairArgument = Annotated[str, typer.Argument(metavar="ID", help="Such as 5-C.")]


@app.command("list")
def list_repairs(*, form: FormatOption = Format.TABLE) -> None:
    """List the repairs, and the words by which their issues are known."""
    show(
        [_plain(repair) for repair in repairs.REPAIRS.values()],
        form,
        lambda _: print_table(
            ("ID", "SYMPTOM", "RUNGS"),
            [(each.id, "; ".join(each.symptoms), " > ".join(each.rungs)) for each in repairs.REPAIRS.values()],
        ),
    )


@app.command("show")
def show_repair(identity: RepairArgument, *, form: FormatOption = Format.TABLE) -> None:
    """Show a repair: what it looks for, and its rungs in order."""
    repair = repairs.find(identity)
    show(_plain(repair), form, lambda _: _print_repair(repair))


@app.command()
def run(
    identity: RepairArgument,
    *,
    limit: Annotated[str | None, typer.Option(metavar="NODE", help="Only this node.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Look, and say what would be done; change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Rungs that end running sessions may do so.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Look for an issue and climb its ladder, one node at a time, until it is gone.

    On the controller as root it needs no API; elsewhere the API hands the order on. It goes on when the connection is
    lost; `penstock repair history` shows what came of it.
    """
    repair = repairs.find(identity)
    shown = Shown(quiet=form is Format.JSON)
    record = None
    for record in _run(repair, limit=limit, dry_run=dry_run, agreed=yes):
        shown.update(record)
    assert record is not None  # noqa: S101 - a run has a record
    if form is Format.JSON:
        print_json(record.plain())
    _require_good(record)


@app.command()
def history(
    identity: Annotated[str | None, typer.Argument(metavar="RUN", help="One run, with all its steps.")] = None,
    *,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the runs, or show one: each rung in order, what it did, and what was seen after it."""
    if identity is None:
        found = _runs()
        show([record.plain() for record in found], form, lambda _: _print_runs(found))
        return
    record = _get(identity)
    show(record.plain(), form, lambda _: Shown().update(record))


@app.command()
def cancel(
    identity: Annotated[str, typer.Argument(metavar="RUN", help="A run, or the beginning of its id.")],
    *,
    form: FormatOption = Format.TABLE,
) -> None:
    """Call back a run that was ordered by the API and waits for the controller."""
    from appliance.cli import config
    from appliance.cli.waiting_orders import identity_of

    api = config.load().client.repairs
    run = api.cancel(identity_of(identity, api.runs()))
    show(run, form, lambda _: print(f"{run['repair']}: {run['state']}"))


@app.command(hidden=True)
def climb(identity: str) -> None:
    """Do what a record orders: what the unit of a run starts."""
    from appliance.site.deployment import deployed_site
    from appliance.site.repair.ladder import climb as do
    from appliance.site.repair.record import Records

    records = Records()
    _require_good(do(deployed_site(), records.get(identity), records))


@app.command(hidden=True)
def serve(
    *, orders: Annotated[bool, typer.Option("--orders", help="Take orders of repairs and backups, too.")] = False
) -> None:
    """Look at nodes without an agent, and take orders from the API, for ever: what the controller's service runs."""
    from appliance.site.deployment import deployed_site
    from appliance.site.repair.controller import Controller
    from appliance.site.repair.record import Records

    Controller(deployed_site, Records(), orders=orders, say=lambda line: print(line, flush=True)).run()


def _run(repair: Repair, *, limit: str | None, dry_run: bool, agreed: bool) -> Iterator[Record]:
    """Start a run and yield its record whenever it has changed, until it is over."""
    from appliance.site import commands, deployment, settings
    from appliance.site.repair import unit
    from appliance.site.repair.record import Record, Records

    if deployment.is_controller():
        record, records = Record(repair.id, settings.caller(), limit, dry_run, agreed), Records()
        # it goes on without this process: what comes of it is told as a run
        with commands.told("repair run", f"repairs/{repair.id}/runs"):
            unit.start(record, records)
        yield from unit.follow(record, records)
        return
    from appliance.cli import config
    from appliance.cli.waiting_orders import WaitingOrder

    client = config.load().client
    waiting = WaitingOrder(client)
    now = client.repairs.run(repair.id, limit=limit, dry_run=dry_run, agreed=agreed)
    yield Record.of(now)
    while now["state"] in OPEN:
        waiting.look(now)
        time.sleep(STEP_S)
        now = client.repairs.get(now["id"])
        yield Record.of(now)


def _runs() -> list[Record]:
    """Return the last runs: those of this machine where it is the controller, else those that the API knows."""
    from appliance.site import deployment
    from appliance.site.repair.record import Record, Records

    if deployment.is_controller():
        records = Records()
        for path in records.damaged():
            print(f"warning: {path} is damaged, and not shown", file=sys.stderr)
        return records.all()
    from appliance.cli import config

    return [Record.of({**run, "steps": []}) for run in config.load().client.repairs.runs()]


def _get(identity: str) -> Record:
    """Return one run by its id or the beginning of it."""
    from appliance.site import deployment
    from appliance.site.repair.record import Record, Records

    if deployment.is_controller():
        return Records().get(identity)
    from appliance.cli import config

    api = config.load().client.repairs
    found = [run["id"] for run in api.runs() if run["id"].startswith(identity)]
    return Record.of(api.get(found[0] if len(found) == 1 else identity))


class Shown:
    """Prints of a record what it has not printed yet."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._printed: Counter[str] = Counter()

    def update(self, record: Record) -> None:
        """Print what is new."""
        lines: Counter[str] = Counter()
        for line in _lines(record):
            lines[line] += 1
            if lines[line] > self._printed[line] and not self._quiet:
                print(line, flush=True)
        self._printed = lines


def _lines(record: Record) -> list[str]:
    """Return a record as text."""
    symptoms = "; ".join(repairs.find(record.repair).symptoms)
    lines = [f"{record.repair}: {symptoms} (run {record.id}, by {record.by})"]
    for step in record.steps:
        lines += _step(step)
    if record.finished_at:
        lines.append(f"{record.repair}: {record.state}" + (f": {record.reason}" if record.reason else ""))
    return lines


def _step(step: Step) -> list[str]:
    tasks = [f"{step.node}:   {task}" for task in step.tasks]
    if not step.evidence:
        return tasks
    what = f"after {step.rung} ({RUNGS[step.rung]})" if step.rung else "look"
    return [*tasks, f"{step.node}: {what}: {'ok' if step.ok else 'not well'}: {step.evidence} ({step.seconds:.1f} s)"]


def _plain(repair: Repair) -> dict[str, Any]:
    rungs = [{"rung": rung, "does": RUNGS[rung]} for rung in repair.rungs]
    return {"id": repair.id, "symptoms": list(repair.symptoms), "looks_for": repair.looks_for, "rungs": rungs}


def _print_repair(repair: Repair) -> None:
    print(f"{repair.id}: {'; '.join(repair.symptoms)}\nwell where {repair.looks_for}\n")
    print_table(("RUNG", "DOES"), [(rung, RUNGS[rung]) for rung in repair.rungs])


def _print_runs(found: list[Record]) -> None:
    print_table(
        ("RUN", "REPAIR", "WHEN", "BY", "STATE", "NODES", "REASON"),
        [
            (
                each.id[:8],
                each.repair + (" (dry run)" if each.dry_run else ""),
                each.ordered_at[:19],
                each.by,
                each.state,
                # those of an earlier release do not say who was sick
                " ".join(each.sick or each.tried),
                each.reason,
            )
            for each in found
        ],
    )


def _require_good(record: Record) -> None:
    if record.state not in GOOD:
        raise ProcessError(
            record.reason or record.state,
            where=f"{record.repair}, {record.state}",
            hint=f"see `penstock repair history {record.id[:8]}`" + (f" and {record.log}" if record.log else ""),
        )
