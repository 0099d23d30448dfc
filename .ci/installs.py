"""Print the packages that extras of this project need, as lines for `pip install --no-deps -c constraints.txt -r FILE`.

    python .ci/installs.py EXTRA[,EXTRA...] [UNUSED...]

Found by the metadata of what is installed here. Without UNUSED ones, which somebody requires and nothing here imports:
pip cannot leave out a requirement, so it is given every name and told to add none. Versions are those of
constraints.txt; one of a local build (torch's for CPUs) is named with it.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def needed(extras: set[str], unused: set[str]) -> list[str]:
    """Return the lines, sorted."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = project["name"]
    asked = {own: set[str]()}
    todo = [Requirement(f"{own}[{','.join(extras)}]")]
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        known = asked.get(name)
        if name in unused or (name != own and known is not None and wanted.extras <= known):
            continue
        chosen = asked[name] = (known or set()) | wanted.extras
        if name == own:
            lines = project["dependencies"] + [
                line for extra in wanted.extras for line in project["optional-dependencies"][extra]
            ]
        else:
            lines = distribution(name).requires or []
        todo += [
            requirement
            for requirement in map(Requirement, lines)
            if not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in chosen or {""})
        ]
    versions = {name: distribution(name).version for name in asked if name != own}
    return sorted(f"{name}=={version}" if "+" in version else name for name, version in versions.items())


if __name__ == "__main__":
    sys.stdout.write("# Written by `make lists`, for `make audit` and `make test`.\n")
    sys.stdout.write("\n".join(needed(set(sys.argv[1].split(",")), set(sys.argv[2:]))) + "\n")
