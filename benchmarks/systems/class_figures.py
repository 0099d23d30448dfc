"""Figures of classes that need no run: those with many attributes, and those whose fields another file writes.

An attribute is a field in the class's body, or what a method sets on `self`; constants, properties and members of
enumerations are none. A field is written by `x.field = …`, `x.field += …`, `x.field[…] = …`, `del x.field` and
`setattr(x, "field", …)`, where `x` is not `self`. Whose field that is is told by the annotation of `x`, where it is a
parameter or a variable that has one, and else by the field's name alone, unless the writing file has a class with such
a field itself. Nobody writes to frozen records.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.systems.source_figures import production_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["MOST_ATTRIBUTES", "wide_classes", "written_elsewhere"]

MOST_ATTRIBUTES = 12
ENUMERATIONS = ("Enum", "Flag")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A class of the folders that are looked at."""

    path: Path
    name: str
    attributes: frozenset[str]
    frozen: bool


def wide_classes(root: Path, folders: Sequence[str]) -> list[str]:
    """Return the classes of these folders with more than MOST_ATTRIBUTES attributes, as `path: class (count)`."""
    return [
        f"{found.path.relative_to(root)}: {found.name} ({len(found.attributes)})"
        for found in _classes(root, folders)
        if len(found.attributes) > MOST_ATTRIBUTES
    ]


def written_elsewhere(root: Path, folders: Sequence[str]) -> dict[str, list[str]]:
    """Return classes of these folders that other files of production code write to: `path: class`, and what where."""
    classes = [one for one in _classes(root, folders) if not one.frozen]
    found: dict[str, list[str]] = defaultdict(list)
    for path in production_files(root):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = {name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for name in _attributes(node)}
        for line, kind, field in sorted(_writes(tree, {}), key=lambda write: write[0]):
            for described in classes:
                known = described.name == kind if kind else field not in own
                if described.path != path and field in described.attributes and known:
                    where = f"{described.path.relative_to(root)}: {described.name}"
                    found[where].append(f"{field} in {path.relative_to(root)}:{line}")
    return dict(found)


def _classes(root: Path, folders: Sequence[str]) -> list[Described]:
    return [
        Described(path=path, name=node.name, attributes=frozenset(_attributes(node)), frozen=_is_frozen(node))
        for path in production_files(root)
        if any(path.is_relative_to(root / folder) for folder in folders)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]


def _is_frozen(node: ast.ClassDef) -> bool:
    marks = (*node.decorator_list, *node.bases)
    return any("frozen=True" in text or text.endswith("NamedTuple") for text in map(ast.unparse, marks))


def _attributes(node: ast.ClassDef) -> set[str]:
    if any(ast.unparse(base).endswith(ENUMERATIONS) for base in node.bases):
        return set()
    fields = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        and not ast.unparse(item.annotation).startswith(("ClassVar", "Final"))
    }  # fmt: skip
    methods = [item for item in node.body if isinstance(item, Function)]
    return fields | {
        target.attr
        for method in methods
        for inner in ast.walk(method)
        for target in _targets(inner)
        if isinstance(target, ast.Attribute) and _is_self(target.value)
    }


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement writes to, by itself."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor):
        targets = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        targets = [node.optional_vars]
    while targets:
        target = targets.pop()
        if isinstance(target, ast.Tuple | ast.List):
            targets.extend(target.elts)
        elif isinstance(target, ast.Starred):
            targets.append(target.value)
        else:
            yield target


def _writes(node: ast.AST, kinds: dict[str, str]) -> Iterator[tuple[int, str | None, str]]:
    """Line, class of what is written to where an annotation says it, and field; `kinds` are the variables in sight."""
    if isinstance(node, Function):
        given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        kinds = kinds | {one.arg: _named(one.annotation) for one in given if one.annotation is not None}
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            kinds = kinds | {child.target.id: _named(child.annotation)}
        for target in _targets(child):
            written = target
            while isinstance(written, ast.Subscript):
                written = written.value
            if isinstance(written, ast.Attribute) and not _is_self(written.value):
                yield written.lineno, _kind(written.value, kinds), written.attr
        if isinstance(child, ast.Call) and ast.unparse(child.func) == "setattr" and len(child.args) == 3:
            changed, field, _ = child.args
            if isinstance(field, ast.Constant) and not _is_self(changed):
                yield child.lineno, _kind(changed, kinds), str(field.value)
        yield from _writes(child, kinds)


def _kind(node: ast.expr, kinds: dict[str, str]) -> str | None:
    return kinds.get(node.id) if isinstance(node, ast.Name) else None


def _named(annotation: ast.expr) -> str:
    """Return the class that an annotation names: `module.Name`, `"Name"` and `Name | None` are `Name`."""
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    return str(text).removesuffix(" | None").rpartition(".")[2]
