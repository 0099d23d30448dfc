"""The import package `memory_audit` is the folder `audit`; `models` and `jobs` are its sub-packages.

setuptools cannot find packages under three roots from pyproject.toml alone, so they are listed here.
"""

from setuptools import find_packages, setup

ROOTS = {"memory_audit": "audit", "memory_audit.models": "models", "memory_audit.jobs": "jobs"}

setup(
    packages=[
        ".".join(part for part in (package, inner) if part)
        for package, folder in ROOTS.items()
        for inner in ("", *find_packages(folder))
    ],
    package_dir=ROOTS,
)
