"""Texts an attacker may put into memory to reach the person who reads the report."""

from __future__ import annotations

from dataclasses import asdict, replace

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.result import EntryText
from tests.unit.report.sample import sample_result

BIDI = "pay to \u202egnp.exe\u202c now"
ANSI = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x9b31m"
ZERO_WIDTH = "se\u200bcret\ufeff \u2062tag: \U000e0041\U000e0042 \ufe0f\u3164"
LONG = "A" * 60_000


def markup(url: str) -> list[str]:
    """Return payloads that run a script or fetch `url` where any of them is not escaped."""
    return [
        f"<script src='{url}script'></script><script>document.title='PWNED'</script>",
        f'"><img src="{url}img" onerror="document.title=\'PWNED\'">',
        f"' onmouseover='x' autofocus onfocus='document.title=`PWNED`' style='background:url({url}attribute)",
        f"</style><style>body{{background:url({url}css)}}</style>",
        f"</title></svg><svg onload=\"document.title='PWNED'\"><image href='{url}svg'/></svg>",
        f"</pre></details><iframe src='{url}frame'></iframe><link rel=stylesheet href='{url}link'>",
        f"<meta http-equiv=refresh content='0;url={url}meta'><base href='{url}'>",
        "{{ 7 * 7 }}{% include '/etc/passwd' %}",
        "]]><!-- --><![CDATA[",
    ]


def hostile_result(payloads):
    """Return the sample with the payloads in every text field, ids and names included."""
    count = 0

    def poison(text):
        nonlocal count
        count += 1
        return f"{payloads[count % len(payloads)]} {text}"

    result = sample_result()
    tenants = []
    for tenant in result.tenants:
        rename = {score.entry_id: poison(score.entry_id) for score in tenant.scores}
        title = poison(tenant.tenant)

        def renamed(names, rename=rename):
            return tuple(rename.get(name, name) for name in names)

        tenants.append(
            replace(
                tenant,
                tenant=title,
                scores=tuple(replace(score, entry_id=rename[score.entry_id]) for score in tenant.scores),
                removal=RemovalSet(
                    attributed={rename[name]: poison(why) for name, why in tenant.removal.attributed.items()}
                ),
                edges=tuple(replace(edge, a=rename[edge.a], b=rename[edge.b]) for edge in tenant.edges),
                events=tuple(
                    replace(
                        event,
                        event_id=poison(event.event_id),
                        query=poison(event.query),
                        output_observed=poison(event.output_observed),
                        output_before=poison(event.output_before or ""),
                        output_after=poison(event.output_after or ""),
                        retrieved=renamed(event.retrieved),
                        retrieved_after=renamed(event.retrieved_after or ()),
                        causes=renamed(event.causes),
                        reason=poison(event.reason),
                    )
                    for event in tenant.events
                ),
                probes=tuple(
                    replace(
                        probe,
                        event_id=poison(probe.event_id),
                        query=poison(probe.query),
                        output_before=poison(""),
                        output_after=poison(""),
                    )
                    for probe in tenant.probes
                ),
                texts=tuple(
                    EntryText(
                        **{
                            field: rename[value] if field == "entry_id" else poison(value)
                            for field, value in asdict(text).items()
                        }
                    )
                    for text in tenant.texts
                ),
                not_examined=tuple(poison(line) for line in tenant.not_examined),
            )
        )
    return replace(
        result,
        run_id=poison("run"),
        store=poison("store"),
        snapshot_digest=poison("digest"),
        config={poison("key"): poison("value")},
        models={poison("role"): poison("model")},
        counters={poison("counter"): 3},
        tenants=tuple(tenants),
    )
