"""Domains: users, projects and resource groups that belong together, with administrators of their own."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from appliance.cli import config, output, parse
from appliance.cli.options import given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.requests import DomainChange
from appliance.client.views import Domain
from common.gpu.units import format_gpus, parse_gpus

app = group("Domains: users and projects with administrators of their own.")

NONE = "none"

PolicyOption = Annotated[
    str | None,
    typer.Option("--policy", metavar="NAME|none", help="The policy of its people who have none of their own."),
]
SharesOption = Annotated[
    bool | None,
    typer.Option("--shares/--no-shares", help="Whether its projects share inside of it, by what follows."),
]
WeightOption = Annotated[
    str | None,
    typer.Option(
        "--weight", metavar="N|quota", help="Its part of what is spare, with --shares; quota: by that. 0: what is left."
    ),
]
QuotaOption = Annotated[
    str | None,
    typer.Option("-g", "--gpus", metavar="N|none", help="What the quotas of its projects may come to; none: any."),
]
LimitOption = Annotated[
    str | None,
    typer.Option("--limit", metavar="N|none", help="What its projects hold together at most, with --shares."),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the domain.")]


@app.command("list")
def list_domains(form: FormatOption = Format.TABLE) -> None:
    """List the domains."""
    output.show(config.load().client.domains.list(), form, _table)


@app.command("create")
def create(
    name: NameArgument,
    *,
    description: Annotated[str | None, typer.Option("--description", help="Who it is.")] = None,
    gpus: QuotaOption = None,
    shares: SharesOption = None,
    weight: WeightOption = None,
    limit: LimitOption = None,
    policy: PolicyOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Create a domain; users and projects are put into it when they are made."""
    fields = _changes(gpus, limit, weight, policy, description=description, shares=shares)
    made = config.load().client.domains.create(name=name, **fields)
    output.show(made, form, lambda _: print(f"Created domain {made['name']}."))


@app.command("update")
def update(
    name: NameArgument,
    *,
    description: Annotated[str | None, typer.Option("--description", help="Who it is.")] = None,
    gpus: QuotaOption = None,
    shares: SharesOption = None,
    weight: WeightOption = None,
    limit: LimitOption = None,
    policy: PolicyOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change a domain; quotas that are beyond a new limit stay, but grow no more."""
    changes = _changes(gpus, limit, weight, policy, description=description, shares=shares)
    changed = config.load().client.domains.change(name, **changes)
    output.show(changed, form, lambda _: print(f"Changed domain {changed['name']}."))


@app.command("delete")
def delete(name: NameArgument) -> None:
    """Delete a domain that nothing belongs to."""
    config.load().client.domains.delete(name)
    print(f"Deleted domain {name}.")


def _changes(
    gpus: str | None, limit: str | None, weight: str | None, policy: str | None, **others: object
) -> DomainChange:
    changes = cast("DomainChange", given(**others))
    if gpus is not None:
        changes["quota_milli"] = None if gpus == NONE else parse_gpus(gpus, "--gpus")
    if limit is not None:
        changes["limit_milli"] = None if limit == NONE else parse_gpus(limit, "--limit")
    if weight is not None:
        changes["over_quota_weight"] = parse.weight(weight, "--weight")
    if policy is not None:
        changes["policy"] = None if policy == NONE else policy
    return changes


def _table(domains: list[Domain]) -> None:
    rows = [
        (
            domain["name"],
            "-" if domain["quota_milli"] is None else format_gpus(domain["quota_milli"]),
            _shares(domain),
            domain["policy"] or "-",
            domain["description"],
            output.age(domain["created_at"]),
        )
        for domain in domains
    ]
    output.print_table(("NAME", "GPUS", "SHARES", "POLICY", "DESCRIPTION", "CREATED"), rows)


def _shares(domain: Domain) -> str:
    if not domain["shares"]:
        return "-"
    weight = "yes" if domain["over_quota_weight"] is None else f"weight {domain['over_quota_weight']}"
    return weight if domain["limit_milli"] is None else f"{weight}, up to {format_gpus(domain['limit_milli'])}"
