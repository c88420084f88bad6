"""Notices: what administrators tell everybody."""

from __future__ import annotations

import locale
from typing import Annotated

import typer

from appliance.cli import config, output, parse
from appliance.cli.options import given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Notice
from appliance.client.words import NoticeLevel
from common.errors import InputError

app = group("What everybody is told: list, create, end.")


@app.command("list")
def list_notices(form: FormatOption = Format.TABLE) -> None:
    """List what is told now; administrators see what will be told, too."""
    output.show(config.load().client.notices.list(), form, _table)


@app.command("create")
def create(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to tell everybody.")],
    *,
    level: Annotated[NoticeLevel | None, typer.Option("--level", help="How much it matters; default: info.")] = None,
    translations: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="LANGUAGE=TEXT", help="For readers of en, ko, ja, zh or th; repeat for more."),
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="DATE", help="First moment; default: now.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DATE", help="Last moment; default: none.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Tell everybody something, in the console and here (administrators)."""
    more = given(
        level=level,
        texts=dict(_translation(words) for words in translations) if translations else None,
        starts_at=parse.moment(from_, "--from") if from_ else None,
        ends_at=parse.moment(until, "--until", ends=True) if until else None,
    )
    notice = config.load().client.notices.create(text=text, **more)
    output.show([notice], form, _table)


@app.command("end")
def end(notice: Annotated[str, typer.Argument(metavar="ID", help="Id of the notice, as `list` shows it.")]) -> None:
    """Tell a notice no more (administrators)."""
    config.load().client.notices.end(notice)
    print(f"Ended notice {notice}.")


def _translation(words: str) -> tuple[str, str]:
    language, equals, text = words.partition("=")
    if not equals:
        raise InputError(f"{words} names no language", where="--text", hint="write it as ko=TEXT")
    return language, text


def _table(notices: list[Notice]) -> None:
    language = _language()
    rows = [
        (
            each["level"],
            output.moment(each["starts_at"]),
            output.moment(each["ends_at"]) or "-",
            {**each["texts"]}.get(language, each["text"]),
            each["id"],
        )
        for each in notices
    ]
    if rows:
        output.print_table(("LEVEL", "FROM", "UNTIL", "TEXT", "ID"), rows, ("TEXT",))
    else:
        print("There is no notice.")


def _language() -> str:
    """Return the code of the language that the terminal speaks."""
    spoken, _ = locale.getlocale()
    return (spoken or "").partition("_")[0]
