"""`memaudit keys new`, `show` and `passphrase`: the files of a key folder, and what protects them."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.jobs.cli.shared import (
    DEFAULT_KEYS,
    Json,
    Keys,
    Trust,
    installed_policy,
    open_keyring,
    print_json,
    print_lines,
)  # fmt: skip
from memory_audit.jobs.passphrases import NEW_VARIABLE, PASSPHRASES, Passphrases
from memory_audit.jobs.places import check_outside_stores
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.provenance import durable
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.key_files.key_file import LockedKey, check_private, encode_key, read_key
from memory_audit.provenance.keys import (
    POLICY_FILE,
    RETIRED,
    by_file_name,
    generate_keys,
    load_policy,
    read_keyring,
    save_keyring,
)
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = ["keys_app"]

PRINCIPALS_SHOWN = 3

STATES = {"plain": "held here", "passphrase": "encrypted", "token": "in a token"}

keys_app = typer.Typer(help="Keys and the trust policy.", no_args_is_help=True)


@keys_app.command("new")
def keys_new(
    folder: Annotated[Path, typer.Argument(help="New folder for the private keys and the policy.")] = DEFAULT_KEYS,
    name: Annotated[str, typer.Option(help="Name in the key ids, e.g. your organisation.")] = "memaudit",
    *,
    as_json: Json = False,
) -> None:
    """Make the keys of each role, and the trust policy for readers.

    The roles are writer, log, auditor and root. The keys are encrypted where a passphrase is given (see `memaudit
    --help`) or typed.
    """
    check_outside_stores(folder)
    made, asked = generate_keys(name), PASSPHRASES.get()
    save_keyring(made, folder, lambda key: asked.new(key, may_be_empty=True))
    encrypted = "plain" not in _held(folder).values()
    if as_json:
        print_json({"folder": str(folder), "policy": made.policy.version, "encrypted": encrypted})
        return
    print_lines(f"keys in {folder} (private: keep them), policy for readers: {folder / POLICY_FILE}")
    if not encrypted:
        print_lines("they are plain: whoever reads these files can sign; `memaudit keys passphrase` encrypts them")


@keys_app.command("show")
def keys_show(keys: Keys = DEFAULT_KEYS, trust: Trust = None, *, as_json: Json = False) -> None:
    """Show the keys of the trust policy, and how they are kept."""
    policy = installed_policy(keys, trust)
    rows = _rows(policy, _held(keys) if trust is None else {})
    if as_json:
        print_json({"version": policy.version, "digest": policy.digest, "keys": rows})
        return
    table = Table(title=f"trust policy {policy.version}, sha256 {policy.digest:.16}…", title_justify="left")
    for head in ("role", "needs", "key", "id", "signs for", "state"):
        table.add_column(head, overflow="fold")
    for row in rows:
        principals = row["principals"]
        more = f" and {len(principals) - PRINCIPALS_SHOWN:,} more" if len(principals) > PRINCIPALS_SHOWN else ""
        signs_for = f"{', '.join(as_line(one, 40) for one in principals[:PRINCIPALS_SHOWN])}{more}"
        state = "revoked" if row["revoked"] else STATES.get(row["kept"], "")
        cells = (row["role"], str(row["threshold"]), as_line(row["name"], 80), row["key_id"][:8], signs_for, state)
        table.add_row(*map(Text, cells))  # plain: a name may look like markup
    terminal().print(table)


@keys_app.command("passphrase")
def keys_passphrase(
    keys: Keys = DEFAULT_KEYS,
    new_passphrase_file: Annotated[
        Path | None,
        typer.Option(
            help="The new passphrase, or a folder with a file for each key; default: the variable "
            f"{NEW_VARIABLE}, else it is asked for."
        ),
    ] = None,
    *,
    none: Annotated[bool, typer.Option("--none", help="Leave the keys plain.")] = False,
    as_json: Json = False,
) -> None:
    """Give the keys in a folder a new passphrase, or take it off.

    Files of earlier versions become PKCS#8 PEM, which `openssl pkey` reads. Keys in tokens stay as they are. A copy
    made before stays readable as it was: rotate where one may be in other hands.
    """
    new, secrets = Passphrases(new_passphrase_file, NEW_VARIABLE, "--new-passphrase-file"), PASSPHRASES.get()
    policy = load_policy(keys / POLICY_FILE)
    with locked(keys):
        durable.remove_leftovers(keys)
        read_keyring(keys)
        files: dict[Path, bytes] = {}
        for path in sorted((*keys.glob("*.key"), *keys.glob(f"*.key{RETIRED}"))):
            check_private(path, f"private key {path.name}")
            key = read_key(path, secrets, by_file_name(policy))
            if not isinstance(key, LockedKey) or key.kept == "passphrase":
                files[path] = encode_key(key, new.new if not none else lambda _: None)
        if not files:
            raise UsageError(f"{keys}: holds no private key, other than those in tokens")
        for path, data in files.items():
            durable.replace(path, data, mode=0o600)
    if as_json:
        print_json({"files": sorted(path.name for path in files), "encrypted": not none})
        return
    print_lines(f"{counted(len(files), 'key')} in {keys} {'plain now' if none else 'encrypted'}")


def _held(folder: Path) -> Mapping[str, str]:
    """Return how the keys are kept whose private parts a folder has, by id."""
    held = (key for found in open_keyring(folder).keys.values() for key in found)
    return {key.public().key_id: key.kept if isinstance(key, LockedKey) else "plain" for key in held}


def _rows(policy: TrustPolicy, held: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "role": name, "threshold": role.threshold, "name": key.name, "key_id": key_id, "vkey": key.vkey,
            "principals": sorted(role.principals.get(key_id, ())), "revoked": key_id in policy.revoked,
            "private": key_id in held, "kept": held.get(key_id),
        }
        for name, role in policy.roles.items()
        for key_id, key in sorted(role.keys.items(), key=lambda item: item[1].name)
    ]  # fmt: skip
