"""A token of SoftHSM, for tests of keys in tokens: Debian's softhsm2, and python-pkcs11 (extra `hsm`)."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from memory_audit.provenance.key_files import token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
LABEL, PIN = "memaudit tests", "1234"


@contextmanager
def soft_token(folder: Path) -> Iterator[Callable[[str], str]]:
    """Make a token whose PIN is PIN, and give the URI of a key by its label; skip the test where there can be none."""
    pkcs11 = pytest.importorskip("pkcs11", reason="needs the extra hsm (python-pkcs11)")
    if not MODULE.exists() or shutil.which("softhsm2-util") is None:
        pytest.skip("needs Debian's softhsm2")
    (folder / "tokens").mkdir()
    (folder / "conf").write_text(f"directories.tokendir = {folder / 'tokens'}\nlog.level = ERROR\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(folder / "conf"))
        words = "--init-token", "--free", "--label", LABEL, "--pin", PIN, "--so-pin", "12345678"
        subprocess.run(["softhsm2-util", *words], check=True, capture_output=True, timeout=60)
        try:
            yield lambda label: f"pkcs11:token={quote(LABEL)};object={label}?module-path={MODULE}"
        finally:
            token._sessions.clear()
            pkcs11.unload(str(MODULE))
