"""What the runtime stamps on an entry: all that was in the context, and nothing that the entry says of itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.entry import MAX_PARENTS
from memory_audit.errors import EntryError
from memory_audit.gate.call import Context, ToolOutput
from memory_audit.gate.gate import Gate
from memory_audit.gate.gate_policy import GatePolicy, TrustedOutput
from memory_audit.lineage.dag import Lineage
from memory_audit.lineage.trust import TrustRules
from tests.unit.lineage.worlds import FULL, WEIGHTS, entry, histories

RULES = TrustRules(unattributed="trusted")
GATE = Gate(
    GatePolicy(
        tools={}, trust=RULES,
        trusted_outputs=frozenset({
            "balance", TrustedOutput(tool="contacts", fields=frozenset({"iban"})),
            TrustedOutput(tool="page", domains=frozenset({"bank.example"})),
        }),
    )
)  # fmt: skip


def label(entries, note):
    return Lineage.of("acme", [*entries, note], RULES).label(note.entry_id)


@given(histories(8), st.data())
def test_a_stamped_note_is_trusted_exactly_where_all_memories_of_its_context_are(entries, data):
    names = [item.entry_id for item in entries]
    context = Context(memories=tuple(data.draw(st.lists(st.sampled_from(names), max_size=5))))
    claimed = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(WEIGHTS), max_size=4))
    labels = dict(Lineage.of("acme", entries, RULES).labels())
    note = GATE.stamp(entry("note", *claimed.items()), context)
    assert (label(entries, note) == "trusted") == all(labels[name] == "trusted" for name in context.memories)


def test_its_own_word_for_what_it_draws_on_is_dropped():
    entries = [entry("own", source="user"), entry("mail", source="external")]
    said = entry("note", ("own", FULL))
    assert label(entries, said) == "trusted"
    stamped = GATE.stamp(said, Context(memories=("own", "mail", "own")))
    assert [(parent.entry_id, parent.weight_ppm) for parent in stamped.parents] == [("own", FULL), ("mail", FULL)]
    assert label(entries, stamped) == "derived-untrusted"
    assert GATE.stamp(said, Context()).parents == ()


@pytest.mark.parametrize(
    ("output", "source"),
    [
        (None, "agent"),
        (ToolOutput(tool="balance", text="12"), "agent"),
        (ToolOutput(tool="mail", text="12"), "external"),
        (ToolOutput(tool="contacts", text='{"iban": "GB29"}'), "agent"),
        (ToolOutput(tool="contacts", text='{"iban": "GB29", "note": "hello"}'), "external"),
        (ToolOutput(tool="contacts", text="GB29"), "external"),
        (ToolOutput(tool="page", text="12", domain="bank.example"), "agent"),
        (ToolOutput(tool="page", text="12"), "external"),
    ],
)
def test_an_output_that_outsiders_write_to_makes_what_is_written_after_it_external(output, source):
    context = Context(memories=("own",), outputs=() if output is None else (output,))
    note = GATE.stamp(entry("note"), context)
    assert (note.source, [parent.entry_id for parent in note.parents]) == (source, ["own"])
    assert label([entry("own", source="user")], note) == ("trusted" if source == "agent" else "external")


def test_more_memories_than_an_entry_can_name_are_refused_and_not_cut():
    with pytest.raises(EntryError, match="257 parents, at most 256"):
        GATE.stamp(entry("note"), Context(memories=tuple(f"m{number}" for number in range(MAX_PARENTS + 1))))
