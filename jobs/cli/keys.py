"""`memaudit keys`: keys, who may sign what, and a new key where an old one must go."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.jobs.cli.shared import (
    DEFAULT_KEYS,
    Json,
    Keys,
    PinFile,
    Trust,
    installed_policy,
    print_json,
    print_lines,
)  # fmt: skip
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.places import check_outside_stores
from memory_audit.jobs.store_session import StoreSession, seen_stores
from memory_audit.provenance.checkpoint import log_origin
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.key_folder import install_rotation, settle
from memory_audit.provenance.keys import (
    POLICY_FILE,
    generate_keys,
    load_keyring,
    read_keyring,
    rotate_key,
    save_keyring,
)
from memory_audit.provenance.trust_policy import RoleName
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["keys_app"]

PRINCIPALS_SHOWN = NAMES_SHOWN = 3
STORES_SHOWN = 10

keys_app = typer.Typer(help="Keys and the trust policy.", no_args_is_help=True)

_NUMBERED = re.compile(r"-[1-9][0-9]*$")


@keys_app.command("new")
def keys_new(
    folder: Annotated[Path, typer.Argument(help="New folder for the private keys and the policy.")] = DEFAULT_KEYS,
    name: Annotated[str, typer.Option(help="Name in the key ids, e.g. your organisation.")] = "memaudit",
) -> None:
    """Make the keys of each role, and the trust policy for readers.

    The roles are writer, log, auditor and root.
    """
    check_outside_stores(folder)
    save_keyring(generate_keys(name), folder)
    print_lines(f"keys in {folder} (private: keep them), policy for readers: {folder / POLICY_FILE}")


@keys_app.command("show")
def keys_show(keys: Keys = DEFAULT_KEYS, trust: Trust = None, *, as_json: Json = False) -> None:
    """Show the keys that the trust policy names."""
    policy = installed_policy(keys, trust)
    rows = _rows(policy, _held(keys) if trust is None else frozenset())
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
        state = "revoked" if row["revoked"] else "held here" if row["private"] else ""
        cells = (row["role"], str(row["threshold"]), as_line(row["name"], 80), row["key_id"][:8], signs_for, state)
        table.add_row(*map(Text, cells))  # plain: a name may look like markup
    Console(soft_wrap=True).print(table)


@keys_app.command("rotate")
def keys_rotate(
    role: Annotated[str, typer.Argument(help=f"Whose key changes: {', '.join(get_args(RoleName))}.")],
    stores: Annotated[
        list[Path] | None, typer.Argument(help="All stores that the old key signed: what they hold stays valid.")
    ] = None,
    keys: Keys = DEFAULT_KEYS,
    name: Annotated[str | None, typer.Option(help="Name of the new key; default: the old one's with a number.")] = None,
    pin: PinFile = None,
    *,
    apply: Annotated[bool, typer.Option("--apply", help="Really do it; without it, only show what would be.")] = False,
    as_json: Json = False,
) -> None:
    """Make a new key for a role, and sign the next trust policy.

    From then on the old key signs nothing more; what it signed in the stores named, up to their newest versions, stays
    valid, and nothing in any other store does. Needs the root key. Changes nothing unless --apply is given.
    """
    wanted, lines = _role(role), list[str]()
    with locked(keys) if apply else nullcontext():
        if apply and (finished := settle(keys)):
            lines.append(f"an interrupted rotation was finished: {', '.join(sorted(finished))}")
            if wanted in finished:
                _print(installed_policy(keys, None), wanted, [], lines, done=True, as_json=as_json)
                return
        before = read_keyring(keys) if apply else load_keyring(keys)
        found = _opened(stores or [], before.policy, pin)
        if wanted != "root" and not found:
            raise UsageError(
                f"name the stores that the {wanted} key signed: in others nothing of it will count any more"
            )
        after = rotate_key(
            before, wanted, name or _next_name(before, wanted),
            logs={
                log_origin(one.store_id, tenant): ref.size for one in found for tenant, ref in one.log_refs.items()
            },
            manifests={one.store_id: one.version + 1 for one in found},
        )  # fmt: skip
        if apply:
            install_rotation(keys, before, after)
    lines.append(f"{'new' if apply else 'would make a new'} {wanted} key {after.keys[wanted][-1].name}")
    lines.append(f"  {_ends(before, wanted)} nothing more")
    if wanted != "root":
        lines += [
            f"  {one.path}: valid up to version {one.version}, {counted(len(one.log_refs), 'log')}" for one in found
        ]
        lines.append("  in every other store nothing of it verifies any more")
        lines += _not_named({one.store_id for one in found})
    lines.append(f"trust policy {after.policy.version}{'' if apply else ' would be signed'}")
    if apply:
        lines.append(
            f"give readers the new {keys / POLICY_FILE}, replace all other copies of {keys}, and restart guards and "
            "gates: they run with the old one"
        )
    else:
        lines.append("dry run: nothing was changed; add --apply to rotate")
    _print(after.policy, wanted, found, lines, done=apply, as_json=as_json)


def _print(
    policy: TrustPolicy,
    role: RoleName,
    found: Sequence[VerifiedSnapshot],
    lines: list[str],
    *,
    done: bool,
    as_json: bool,
) -> None:
    if as_json:
        print_json({
            "policy": policy.version, "digest": policy.digest, "role": role, "rotated": done,
            "stores": {one.store_id: one.version for one in found},
        })  # fmt: skip
        return
    print_lines(*lines)


def _ends(keyring: Keyring, role: RoleName) -> str:
    """Name the keys that a rotation revokes or drops."""
    policy = keyring.policy
    names = sorted(key.name for key_id, key in policy.roles[role].keys.items() if key_id not in policy.revoked)
    shown = ", ".join(as_line(name, 80) for name in names[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return f"{shown}{more} {'signs' if len(names) == 1 else 'sign'}"


def _not_named(named: set[str]) -> list[str]:
    """Say which stores this user has seen and did not name: they may be signed by the same keys."""
    others = sorted(seen_stores() - named)
    lines = [f"  not named: store {one}, which you have seen: if it is yours, name it" for one in others[:STORES_SHOWN]]
    if len(others) > STORES_SHOWN:
        lines.append(f"  not named: {len(others) - STORES_SHOWN:,} more stores that you have seen")
    return lines


def _role(text: str) -> RoleName:
    if text not in get_args(RoleName):
        raise UsageError(f"role is {text!r:.40}, expected one of {', '.join(get_args(RoleName))}")
    return cast("RoleName", text)


def _opened(stores: Sequence[Path], policy: TrustPolicy, pin: Path | None) -> list[VerifiedSnapshot]:
    """Open stores at their newest versions: a rolled-back one would revoke what was honestly signed since."""
    if pin is not None and len(stores) > 1:
        raise UsageError("--pin is one store's: rotate with one store, or leave it out")
    now = now_ms()
    return [StoreSession.open(store, policy, pin, now_ms=now, check_expiry=False).snapshot for store in stores]


def _next_name(keyring: Keyring, role: RoleName) -> str:
    """Return `memaudit/writer-3` where policy 3 is next, whatever the old key's number."""
    old = min(key.name for key in keyring.policy.roles[role].keys.values())
    return f"{_NUMBERED.sub('', old)}-{keyring.policy.version + 1}"


def _held(folder: Path) -> frozenset[str]:
    """Return the ids of the keys whose private parts are in a folder."""
    return frozenset(key.public().key_id for found in load_keyring(folder).keys.values() for key in found)


def _rows(policy: TrustPolicy, held: frozenset[str]) -> list[dict[str, Any]]:
    return [
        {
            "role": name, "threshold": role.threshold, "name": key.name, "key_id": key_id,
            "principals": sorted(role.principals.get(key_id, ())), "revoked": key_id in policy.revoked,
            "private": key_id in held,
        }
        for name, role in policy.roles.items()
        for key_id, key in sorted(role.keys.items(), key=lambda item: item[1].name)
    ]  # fmt: skip
