"""Figures of a source tree that need no run: lines, files a folder, repeats, import circles, words of its pages."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import networkx as nx

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["PRODUCTION", "import_circles", "production_files", "repeated_lines", "sentences", "source_figures"]

PRODUCTION = ("audit", "models", "jobs")
REPEATED = 6
"""So many equal lines behind one another are repeated code."""


def source_figures(root: Path) -> dict[str, int]:
    """Return every figure of a checkout, by name."""
    files = {path: path.read_text(encoding="utf-8").splitlines() for path in production_files(root)}
    folders = Counter(path.parent for path in files)
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    words = {path: [len(one.split()) for one in sentences(path.read_text(encoding="utf-8"))] for path in pages}
    return {
        "lines of production code": sum(map(len, files.values())),
        "files in the fullest folder": max(folders.values()),
        "lines of the longest file": max(map(len, files.values())),
        "repeated lines": repeated_lines(files.values()),
        "import circles": import_circles(root),
        "words of the README": len((root / "README.md").read_text(encoding="utf-8").split()),
        "words of the longest sentence": max(count for counts in words.values() for count in counts),
        "sentences over 30 words": sum(count > 30 for counts in words.values() for count in counts),
    }


def production_files(root: Path) -> list[Path]:
    """Return the Python files of the three layers."""
    return sorted(path for layer in PRODUCTION for path in (root / layer).rglob("*.py"))


def repeated_lines(files: Iterable[list[str]]) -> int:
    """Count lines within REPEATED or more that stand elsewhere too; blank lines, indents and imports do not count."""
    kept = [[line.strip() for line in _without_imports(lines) if line.strip()] for lines in files]
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, lines in enumerate(kept):
        for start in range(len(lines) - REPEATED + 1):
            places[tuple(lines[start : start + REPEATED])].append((number, start))
    return len({
        (number, start + offset)
        for found in places.values()
        if len(found) > 1
        for number, start in found
        for offset in range(REPEATED)
    })  # fmt: skip


def _without_imports(lines: list[str]) -> Iterator[str]:
    tree = ast.parse("\n".join(lines))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    left_out = {line for node in imports for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return (line for number, line in enumerate(lines, 1) if number not in left_out)


def import_circles(root: Path) -> int:
    """Count groups of modules that import each other as they are loaded."""
    modules = {_module_of(path, root): path for path in production_files(root)}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, path in modules.items():
        for node in _loaded_with(ast.parse(path.read_text(encoding="utf-8"))):
            graph.add_edges_from((name, other) for other in _imported(node) if other in modules and other != name)
    return sum(len(group) > 1 for group in nx.strongly_connected_components(graph))


def _module_of(path: Path, root: Path) -> str:
    """Return the dotted path in the checkout: imports of either name of the package are turned into it."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = [node.module or "", *(f"{node.module}.{name}" for name in names)]
    for name in names:
        rest = name.removeprefix("memory_audit.")
        yield rest if rest == name or rest.partition(".")[0] in PRODUCTION[1:] else f"{PRODUCTION[0]}.{rest}"


def _loaded_with(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run as the module is loaded: not those within functions, nor those for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _loaded_with(child)


def sentences(page: str) -> list[str]:
    """Return the sentences of a Markdown page; code, tables, headings, pictures and link targets are none."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", page, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not re.match(r"\s*\||\s*#|    \S|\t|\s*!\[|\s*:::|\s*---", line)]
    text = re.sub(r"^\s*(?:[-*+]|\d+\.)\s+", "\n\n", "\n".join(lines), flags=re.MULTILINE)
    text = re.sub(r"[`*_]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    return [part for block in blocks for part in re.split(r"(?<=[.!?])\s+(?=[A-Z(])", block) if part]
