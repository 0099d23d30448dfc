"""Options that commands have in common: a dataclass with a field for each, taken by a command as one value.

    @app.command()
    @spread_options
    def check(store: Store, *, options: GuardOptions) -> None: ...

typer makes an option of each parameter of a function and knows no groups; `spread_options` shows it the fields in the
group's place. A field is annotated as an option's parameter would be, and its default is the option's.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["spread_options"]


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose dataclass parameters are options, one for each field; it is called by keywords only."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            shown += _options_of(groups[name])
        else:
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @functools.wraps(command)
    def spread(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    # typer reads both.
    spread.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return spread


def _options_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    if any(field.default_factory is not MISSING for field in fields(group)):
        raise TypeError(f"{group.__name__}: an option's default is a value")
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name],
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(group)
    ]  # fmt: skip
