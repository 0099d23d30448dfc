"""Write the generated parts of the documentation: reference from the code, tables from `benchmarks/results`.

    python -m docs.generate

A page holds a generated part between two comments, `<!-- generated: NAME -->` and `<!-- end -->`; all else in it is
written by hand. Figures are copied beside the pages that show them. A test says whether what is committed is current.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer.main

from benchmarks.harness import pages
from benchmarks.harness.resultfile import RESULTS
from memory_audit.config import AuditConfig
from memory_audit.formats.setting_types import describe_type
from memory_audit.jobs.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FIGURES", "configuration", "current_text", "main", "written_pages"]

DOCS = Path(__file__).parent
ROOT = DOCS.parent

FIGURES = ("rho_sweep.svg", "methods.svg", "many_acts.svg", "lineage_tau_k.svg")
"""Files of `benchmarks/results` that pages in `docs/results` show."""

_PART = re.compile(r"(<!-- generated: (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def current_text(page: str) -> str:
    """Return a page with its generated parts as they are now.

    Raises:
        KeyError: a part of an unknown name.
    """
    return _PART.sub(lambda found: f"{found[1]}\n{PARTS[found['name']]()}\n\n{found[3]}", page)


def configuration() -> str:
    """Describe each option of an audit, in the order of the record."""
    hints, docs = get_type_hints(AuditConfig, include_extras=True), _field_docs(AuditConfig)
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for option in dataclasses.fields(AuditConfig):
        default = option.default if option.default_factory is dataclasses.MISSING else option.default_factory()
        meaning = re.sub(r"\(see (memory_audit[\w.]+)\)", r"(see `\1`)", docs.get(option.name, ""))
        lines.append(f"| `{option.name}` | {_cell(describe_type(hints[option.name]))} | {_value(default)} "
                     f"| {_cell(meaning)} |")  # fmt: skip
    return "\n".join(lines)


def _field_docs(record: type) -> dict[str, str]:
    """Return the text under each field of a dataclass."""
    source = inspect.getsource(record)
    found = re.finditer(r'^    (\w+): [^\n]*\n    """(.*?)"""', source, re.DOTALL | re.MULTILINE)
    return {field[1]: " ".join(field[2].split()) for field in found}


def _value(value: object) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, dict):
        return _cell("{" + ", ".join(f"{name}: {item}" for name, item in value.items()) + "}", code=True)
    return _cell(str(value), code=True)


def _cell(text: str, *, code: bool = False) -> str:
    text = text.replace("|", "\\|")
    return f"`{text}`" if code else text


def command_line() -> str:
    """Describe every command: what it does, and a row for each argument and option."""
    root = typer.main.get_command(app)
    return "\n\n".join(_commands(root, root.make_context("memaudit", [], resilient_parsing=True)))


def _commands(command: Any, context: Any) -> Iterator[str]:
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, child.make_context(name, [], parent=context, resilient_parsing=True))
    if not hasattr(command, "commands"):
        yield _command(command, context)


def _command(command: Any, context: Any) -> str:
    arguments, options = _rows(command, context)
    usage = " ".join(
        [context.command_path, *(["[OPTIONS]"] if options else []), *command.collect_usage_pieces(context)[1:]]
    )
    lines = [f"## {context.command_path}", "", f"    {usage}", "", " ".join((command.help or "").split())]
    for title, rows in (("argument", arguments), ("option", options)):
        if rows:
            lines += [
                "",
                f"| {title} | meaning |",
                "|---|---|",
                *(f"| {_cell(a, code=True)} | {_cell(b)} |" for a, b in rows),
            ]
    return "\n".join(lines)


def _rows(command: Any, context: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    arguments: list[tuple[str, str]] = []
    options: list[tuple[str, str]] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            rows = options if parameter.param_type_name == "option" else arguments
            rows.append((record[0], " ".join(record[1].split()).replace("[", "\\[")))
    return arguments, options


def exit_codes() -> str:
    """Return the exit codes as `memaudit --help` ends with them."""
    epilog = (app.info.epilog or "").replace("\b", "")
    found = re.findall(r"^  (\d+) +(.+)$", epilog, re.MULTILINE)
    return "\n".join(["| code | meaning |", "|---|---|", *(f"| {code} | {meaning} |" for code, meaning in found)])


PARTS: dict[str, Callable[[], str]] = {
    "configuration": configuration,
    "command line": command_line,
    "exit codes": exit_codes,
    **pages.PARTS,
}


def written_pages() -> list[Path]:
    """Return every page that may hold generated parts."""
    return [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "benchmarks" / "README.md"]


def main() -> None:
    """Bring every page and figure up to date, and say which changed."""
    for page in written_pages():
        old = page.read_text(encoding="utf-8")
        new = current_text(old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: generated anew")
    for name in FIGURES:
        figure, shown = RESULTS / name, DOCS / "results" / name
        if not shown.exists() or shown.read_bytes() != figure.read_bytes():
            shown.write_bytes(figure.read_bytes())
            print(f"{shown.relative_to(ROOT)}: copied")


if __name__ == "__main__":
    main()
