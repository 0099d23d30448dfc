"""`memaudit keys rotate`, `add`, `revoke` and `threshold`: the next trust policy, shown first and then signed."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from memory_audit.counted import counted
from memory_audit.errors import UsageError, VerificationError
from memory_audit.jobs.cli.shared import (
    DEFAULT_KEYS,
    Json,
    Keys,
    PinFile,
    open_keyring,
    print_json,
    print_lines,
)  # fmt: skip
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.passphrases import PASSPHRASES
from memory_audit.jobs.spread_options import spread_options
from memory_audit.jobs.store.store_session import StoreSession, seen_stores
from memory_audit.provenance.ed25519 import PublicKey
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.key_files.key_file import LockedKey, read_offered
from memory_audit.provenance.key_files.token import TokenKey, TokenSigner, generate_on_token, public_key_on_token
from memory_audit.provenance.key_folder import install_rotation, settle
from memory_audit.provenance.keys import POLICY_FILE, draw_key, read_keyring
from memory_audit.provenance.policy_change import (
    add_key,
    change_threshold,
    revoke_key,
    rotate_key,
    usable_keys,
)  # fmt: skip
from memory_audit.provenance.tlog.checkpoint import log_origin
from memory_audit.provenance.trust_policy import RoleName
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.verify import verify_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memory_audit.provenance.ed25519 import Signer
    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["keys_add", "keys_revoke", "keys_rotate", "keys_threshold"]

NAMES_SHOWN = 3
STORES_SHOWN = 10

MIN_ID_CHARACTERS = 8
"""As many as `keys show` shows."""

_NUMBERED = re.compile(r"-[1-9][0-9]*$")

ROLES = ", ".join(get_args(RoleName))
Apply = Annotated[bool, typer.Option("--apply", help="Really do it; without it, only show what would be.")]
NoStore = Annotated[bool, typer.Option("--no-store", help="There is no store whose signatures are to be kept.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """Where a new key comes from; drawn, where nothing is said."""

    name: Annotated[
        str | None, typer.Option(help="Name of the new key; default: the role's first one's with a number.")
    ] = None
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Take the key in this file: a PEM of OpenSSL, or a vkey of one held elsewhere."),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(help="Take the key in a token: pkcs11:token=LABEL;object=LABEL?module-path=/PATH/MODULE.so"),
    ] = None
    generate: Annotated[bool, typer.Option("--generate", help="Make the key in the token first.")] = False

    def brought(
        self, change: Callable[[Signer | PublicKey], Keyring], keyring: Keyring, role: RoleName, *, apply: bool
    ) -> Keyring:
        """Change a keyring by the new key; one in a token is made when all else is known to be right.

        Raises:
            UsageError: options that contradict each other, no such file, key or token, or a wrong passphrase or PIN.
        """
        if self.generate and apply:
            change(self._key(keyring, role, apply=False))
        return change(self._key(keyring, role, apply=apply))

    def _key(self, keyring: Keyring, role: RoleName, *, apply: bool) -> Signer | PublicKey:
        if (self.source is not None and self.token is not None) or (self.generate and self.token is None):
            raise UsageError("a key comes from one place: --from FILE, or --token URI, there with --generate too")
        name = self.name or _next_name(keyring, role)
        if self.source is not None:
            return read_offered(self.source, name, PASSPHRASES.get())
        if self.token is None or (self.generate and not apply):  # a dry run makes no key in a token
            return draw_key(name)
        key = TokenKey.parse(self.token, "--token")

        def pin() -> bytes:
            return PASSPHRASES.get()(name)

        if self.generate:
            generate_on_token(key, pin, "--token")
        return TokenSigner.open(key, public_key_on_token(key, name, pin, "--token"), pin, "--token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The key folder that is changed, and how."""

    keys: Keys = DEFAULT_KEYS
    pin: PinFile = None
    no_store: NoStore = False
    apply: Apply = False
    as_json: Json = False


@spread_options
def keys_rotate(
    role: Annotated[str, typer.Argument(help=f"Whose key changes: {ROLES}.")],
    stores: Annotated[
        list[Path] | None, typer.Argument(help="All stores that the old key signed: what they hold stays valid.")
    ] = None,
    *,
    new: NewKey,
    folder: Folder,
) -> None:
    """Replace a role's keys by a new one: the next trust policy.

    From then on the old keys sign nothing more; what they signed in the stores named, up to their newest versions,
    stays valid, and nothing in any other store does. Needs the root key. Changes nothing unless --apply is given.
    """
    wanted = _role(role)
    found: list[VerifiedSnapshot] = []

    def change(before: Keyring) -> Keyring:
        found.extend(_kept(stores or [], before.policy, folder.pin, wanted, no_store=folder.no_store))

        def rotated(key: Signer | PublicKey) -> Keyring:
            if isinstance(key, PublicKey):
                raise UsageError("a rotation needs the private key: a public one is added (memaudit keys add)")
            return rotate_key(before, wanted, key, **_positions(found))

        return new.brought(rotated, before, wanted, apply=folder.apply)

    changed = _change(folder.keys, wanted, change, apply=folder.apply)
    if changed.before is not None and changed.key is not None:
        changed.lines.append(
            f"{'new' if folder.apply else 'would make a new'} {wanted} key {as_line(changed.key.name, 80)}"
        )
        changed.lines.extend(_ended(wanted, usable_keys(changed.before.policy, wanted), found))
    changed.show("rotated", wanted, found, as_json=folder.as_json)


@spread_options
def keys_add(
    role: Annotated[str, typer.Argument(help=f"Which role has one more key: {ROLES}.")],
    *,
    keys: Keys = DEFAULT_KEYS,
    new: NewKey,
    principal: Annotated[
        list[str] | None, typer.Option(help="Writers only, repeatable: whom the key speaks for; * for all.")
    ] = None,
    apply: Apply = False,
    as_json: Json = False,
) -> None:
    """Give a role one more key: the next trust policy.

    A writer's speaks for the principals named, whose entries it signs from then on. Of a key that is held elsewhere the
    public part is enough. Needs the root key. Changes nothing unless --apply is given.
    """
    wanted = _role(role)

    def change(before: Keyring) -> Keyring:
        return new.brought(lambda key: add_key(before, wanted, key, principal or ()), before, wanted, apply=apply)

    changed = _change(keys, wanted, change, apply=apply)
    if changed.key is not None:
        of = f" for {', '.join(as_line(one, 40) for one in principal)}" if principal else ""
        changed.lines.append(f"{'new' if apply else 'would add the'} {wanted} key {as_line(changed.key.name, 80)}{of}")
    changed.show("added", wanted, (), as_json=as_json)


@spread_options
def keys_revoke(
    role: Annotated[str, typer.Argument(help=f"Whose key it is: {ROLES}.")],
    key: Annotated[str, typer.Argument(help="Its name, or the start of its id (memaudit keys show).")],
    stores: Annotated[
        list[Path] | None, typer.Argument(help="All stores that it signed: what they hold stays valid.")
    ] = None,
    *,
    folder: Folder,
) -> None:
    """Revoke one key of a role: the next trust policy.

    What it signed in the stores named, up to their newest versions, stays valid, and nothing in any other store does.
    As many keys must be left as the role needs signatures. Needs the root key. Changes nothing unless --apply is given.
    """
    wanted = _role(role)
    found: list[VerifiedSnapshot] = []
    revoked: dict[str, PublicKey] = {}

    def change(before: Keyring) -> Keyring:
        revoked.update(_named_key(before.policy, wanted, key))
        found.extend(_kept(stores or [], before.policy, folder.pin, wanted, no_store=folder.no_store))
        return revoke_key(before, wanted, next(iter(revoked)), **_positions(found))

    changed = _change(folder.keys, wanted, change, apply=folder.apply, brings_key=False)
    changed.lines.extend(_ended(wanted, revoked, found))
    changed.show("revoked", wanted, found, as_json=folder.as_json)


@spread_options
def keys_threshold(
    role: Annotated[str, typer.Argument(help="Of which role: root, log or auditor.")],
    threshold: Annotated[int, typer.Argument(help="How many of its keys must sign.")],
    stores: Annotated[
        list[Path] | None, typer.Argument(help="All stores that these keys signed: they must verify afterwards.")
    ] = None,
    *,
    folder: Folder,
) -> None:
    """Say how many keys of a role must sign: the next policy.

    It counts for what was signed before, too: raise it before the first import. A store in which fewer keys signed is
    told, and nothing changed. Needs the root key. Changes nothing unless --apply is given.
    """
    wanted = _role(role)
    found: list[VerifiedSnapshot] = []

    def change(before: Keyring) -> Keyring:
        after = change_threshold(before, wanted, threshold)
        if threshold > before.policy.roles[wanted].threshold:
            found.extend(_kept(stores or [], before.policy, folder.pin, wanted, no_store=folder.no_store))
            for one in found:
                _check_verifies(one, after.policy)
        return after

    changed = _change(folder.keys, wanted, change, apply=folder.apply, brings_key=False)
    changed.lines.append(
        f"{counted(threshold, 'key')} of role {wanted} {'must' if folder.apply else 'would have to'} sign"
    )
    changed.show("changed", wanted, found, as_json=folder.as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What a command made of a key folder, or would."""

    keys: Path
    before: Keyring | None
    """None where an interrupted start of the same command was finished, and nothing else done."""

    after: Keyring
    applied: bool
    lines: list[str]

    @property
    def key(self) -> PublicKey | None:
        """The new key."""
        if self.before is None:
            return None
        known = self.before.policy.roles_by_key()
        listed = (item for role in self.after.policy.roles.values() for item in role.keys.items())
        return next((key for key_id, key in listed if key_id not in known), None)

    def show(self, verb: str, role: RoleName, found: Sequence[VerifiedSnapshot], *, as_json: bool) -> None:
        """Print it."""
        policy = self.after.policy
        if as_json:
            print_json({
                "policy": policy.version, "digest": policy.digest, "role": role, verb: self.applied,
                "key": None if self.key is None else self.key.vkey,
                "stores": {one.store_id: one.version for one in found},
            })  # fmt: skip
            return
        print_lines(*self.lines)
        if self.before is None:
            return
        print_lines(f"trust policy {policy.version}{'' if self.applied else ' would be signed'}")
        print_lines(
            f"give readers the new {self.keys / POLICY_FILE}, replace all other copies of {self.keys}, and restart "
            "guards and gates: they run with the old one"
            if self.applied
            else "dry run: nothing was changed; add --apply"
        )


def _change(
    keys: Path, role: RoleName, change: Callable[[Keyring], Keyring], *, apply: bool, brings_key: bool = True
) -> Changed:
    """Make the next policy of a key folder, and write it where it is to apply."""
    lines: list[str] = []
    with locked(keys) if apply else nullcontext():
        if apply and (finished := settle(keys)):
            lines.append(f"an interrupted change of these keys was finished: {', '.join(sorted(finished))}")
            if brings_key and role in finished:
                return Changed(keys=keys, before=None, after=read_keyring(keys), applied=True, lines=lines)
        before = read_keyring(keys, PASSPHRASES.get()) if apply else open_keyring(keys)
        after = change(before)
        if apply:
            held = (key for found in before.keys.values() for key in found)
            must = any(isinstance(key, LockedKey) and key.kept == "passphrase" for key in held)
            install_rotation(keys, before, after, lambda name: PASSPHRASES.get().new(name, may_be_empty=not must))
    return Changed(keys=keys, before=before, after=after, applied=apply, lines=lines)


def _kept(
    stores: Sequence[Path], policy: TrustPolicy, pin: Path | None, role: RoleName, *, no_store: bool
) -> list[VerifiedSnapshot]:
    """Open the stores whose signatures are to be kept.

    At their newest versions: a rolled-back one would revoke what was honestly signed since.
    """
    if pin is not None and len(stores) > 1:
        raise UsageError("--pin is one store's: name one store, or leave it out")
    if role != "root" and no_store == bool(stores):
        raise UsageError(
            f"name the stores that the {role} key signed: in others nothing of it will count any more (--no-store "
            "where there is none)"
        )
    now = now_ms()
    return [StoreSession.open(store, policy, pin, now_ms=now, check_expiry=False).snapshot for store in stores]


def _positions(found: Sequence[VerifiedSnapshot]) -> dict[str, Mapping[str, int]]:
    """Return where the old keys' word ends in these stores."""
    return {
        "logs": {log_origin(one.store_id, tenant): ref.size for one in found for tenant, ref in one.log_refs.items()},
        "manifests": {one.store_id: one.version + 1 for one in found},
    }


def _check_verifies(store: VerifiedSnapshot, policy: TrustPolicy) -> None:
    try:
        verify_store(store.path, policy, now_ms=now_ms())
    except VerificationError as error:
        raise UsageError(f"{store.path} would verify no more: {error}") from None


def _ended(role: RoleName, ended: Mapping[str, PublicKey], found: Sequence[VerifiedSnapshot]) -> list[str]:
    """Say which keys sign nothing more, and where what they signed stays valid."""
    names = sorted(key.name for key in ended.values())
    shown = ", ".join(as_line(name, 80) for name in names[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    lines = [f"  {shown}{more} {'signs' if len(names) == 1 else 'sign'} nothing more"]
    if role == "root":
        return lines
    lines += [f"  {one.path}: valid up to version {one.version}, {counted(len(one.log_refs), 'log')}" for one in found]
    return [
        *lines, "  in every other store nothing of it verifies any more", *_not_named({one.store_id for one in found})
    ]  # fmt: skip


def _not_named(named: set[str]) -> list[str]:
    """Say which stores this user has seen and did not name: they may be signed by the same keys."""
    others = sorted(seen_stores() - named)
    lines = [f"  not named: store {one}, which you have seen: if it is yours, name it" for one in others[:STORES_SHOWN]]
    if len(others) > STORES_SHOWN:
        lines.append(f"  not named: {len(others) - STORES_SHOWN:,} more stores that you have seen")
    return lines


def _role(text: str) -> RoleName:
    if text not in get_args(RoleName):
        raise UsageError(f"role is {text!r:.40}, expected one of {ROLES}")
    return cast("RoleName", text)


def _next_name(keyring: Keyring, role: RoleName) -> str:
    """Return `memaudit/writer-3` where policy 3 is next, whatever the old key's number."""
    old = min(key.name for key in keyring.policy.roles[role].keys.values())
    return f"{_NUMBERED.sub('', old)}-{keyring.policy.version + 1}"


def _named_key(policy: TrustPolicy, role: RoleName, text: str) -> dict[str, PublicKey]:
    """Return the key of a role that is called so, or whose id begins so."""
    keys = policy.roles[role].keys.items()
    is_start = len(text) >= MIN_ID_CHARACTERS
    found = {key_id: key for key_id, key in keys if key.name == text or (is_start and key_id.startswith(text))}
    if len(found) != 1:
        raise UsageError(f"{len(found) or 'no'} {role} keys are called {text!r:.80}: `memaudit keys show` names them")
    if found.keys() <= policy.revoked.keys():
        raise UsageError(f"{role} key {text:.80} is revoked already")
    return found
