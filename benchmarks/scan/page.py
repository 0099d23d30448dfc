"""The pages of a scan with many findings: bytes, seconds to write, and seconds until Chromium shows them.

    python -m benchmarks.scan.page [--findings 100000]

Findings are synthetic: one of each memory, of 20 kinds in 200 tenants, with numbers in their messages. A browser's time
is that of headless Chromium to load a page and print its DOM, less that for an empty page; the least of some tries.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.harness.resultfile import ResultFile
from benchmarks.scale.result_size import open_seconds
from memory_audit.entry import Entry
from memory_audit.jobs.scan.scan_pages import write_pages
from memory_audit.scan.detector import Kind, ScannedMemory
from memory_audit.scan.finding import SEVERITIES, Finding
from memory_audit.scan.pages.commands import Places
from memory_audit.scan.result import KnownFinding, ScannedTenant, ScanResult

NOW_MS = 1_800_000_000_000
TENANTS, KINDS = 200, 20
MAX_BYTES, MAX_OPEN_S = 5_000_000, 2.0


def known(tenant: str, number: int) -> KnownFinding:
    """One finding of one memory."""
    found = Finding(
        detector="benchmark", kind=f"kind-{number % KINDS}", tenant=tenant, entry_ids=(f"mem-{number:08}",),
        severity=SEVERITIES[number % 4], key=str(number),
        message=f"contradicts {number % 9 + 1} of its {number % 40 + 10} neighbours",
    )  # fmt: skip
    return KnownFinding(finding=found, state="new" if number % 3 else "known", first_seen_ms=NOW_MS)


def memory(result: ScanResult, tenant: str) -> ScannedMemory:
    """The memories that a tenant's findings are about."""
    findings = next(one.findings for one in result.tenants if one.tenant == tenant)
    entries = [
        Entry(
            tenant=tenant, entry_id=one.finding.entry_ids[0], principal="bot", source="agent", request="",
            response="Refunds take thirty days. " * 8, created_at_ms=NOW_MS,
        )
        for one in findings
    ]  # fmt: skip
    return ScannedMemory(tenant=tenant, entries=entries, now_ms=NOW_MS)


def main() -> None:
    """Write the pages, weigh them, and open them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--findings", type=int, default=100_000)
    count = parser.parse_args().findings
    each = count // TENANTS
    tenants = tuple(
        ScannedTenant(
            tenant=f"t-{place:03}", memories=each, copies=0,
            findings=tuple(known(f"t-{place:03}", place * each + number) for number in range(each)),
        )
        for place in range(TENANTS)
    )  # fmt: skip
    kinds = {
        f"kind-{number}": Kind(title=f"Kind {number}", advice="Read it.", severity="low") for number in range(KINDS)
    }
    result = ScanResult(
        source="store", snapshot_version=1, snapshot_digest=None, scanned_at_ms=NOW_MS, tenants=tenants, kinds=kinds,
    )  # fmt: skip
    file = ResultFile("scan_page", "python -m benchmarks.scan.page", {"findings": count}, fresh=True)
    with tempfile.TemporaryDirectory() as made:
        folder, began = Path(made), time.perf_counter()
        index = write_pages(result, lambda tenant: memory(result, tenant), folder / "pages", Places("run", "store"))
        file.add_row({"write_s": round(time.perf_counter() - began, 2)})
        for name in ("index.html", "findings.html", "entries/0001.html"):
            page = index.parent / name
            size, seconds = page.stat().st_size, open_seconds(page.as_uri(), folder)
            file.add_row({"page": name, "bytes": size, "open_s": seconds})
            file.add_bar(f"{name}: bytes", size, "bytes", f"<= {MAX_BYTES}", met=size <= MAX_BYTES)
            if seconds is not None:
                file.add_bar(f"{name}: open", seconds, "s", f"<= {MAX_OPEN_S}", met=seconds <= MAX_OPEN_S)


if __name__ == "__main__":
    main()
