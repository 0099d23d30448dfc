"""A dataclass of options as typer and its users see it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from memory_audit.jobs.spread_options import spread_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    where: Annotated[Path, typer.Option("--into", envvar="WHERE_TO", help="A folder.")]
    often: Annotated[int, typer.Option(help="How often.")] = 3


app = typer.Typer(rich_markup_mode=None)
taken = []


@app.command()
@spread_options
def command(
    name: Annotated[str, typer.Argument(help="A name.")],
    *,
    before: Annotated[str | None, typer.Option(help="Comes first.")] = None,
    shared: Shared,
    after: Annotated[bool, typer.Option("--after", help="Comes last.")] = False,
) -> None:
    """Do what it says."""
    taken.append((name, before, shared, after))


def run(words, env=None):
    taken.clear()
    return CliRunner().invoke(app, words.split(), env=env)


def test_the_command_takes_the_fields_as_one_value():
    assert run("a --before b --into x --often 4 --after").exit_code == 0
    assert taken == [("a", "b", Shared(where=Path("x"), often=4), True)]


def test_defaults_and_the_environment_are_those_of_the_fields():
    assert run("a", env={"WHERE_TO": "y"}).exit_code == 0
    assert taken == [("a", None, Shared(where=Path("y"), often=3), False)]


def test_a_field_without_a_default_is_required():
    stopped = run("a")
    assert (stopped.exit_code, taken) == (2, [])
    assert "--into" in stopped.output


def test_help_lists_the_fields_where_the_group_stands():
    shown = run("--help").output
    assert "Do what it says." in shown
    places = [shown.index(part) for part in ("A name.", "Comes first.", "A folder.", "How often.", "Comes last.")]
    assert places == sorted(places)
