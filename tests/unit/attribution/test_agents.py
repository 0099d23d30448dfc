"""Agents build the prompts that the audited agent built, and settings name them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.replays.agents import Agent, FewShotAgent, TemplateAgent, load_agent, load_object
from memory_audit.errors import UsageError
from memory_audit.generation import Completion, Message
from tests.unit.attribution.world import make_entry


def completion(text):
    return Completion(text=text, finish_reason="stop")


def play(steps, answer="done"):
    request = next(steps)
    with pytest.raises(StopIteration) as stop:
        steps.send(completion(answer))
    return request, stop.value.value


def test_memories_are_earlier_turns_with_the_best_next_to_the_question():
    memories = [make_entry(0, "best"), make_entry(1, "second")]
    request, output = play(FewShotAgent(system="sys", max_tokens=7, stop=("END",)).episode("why?", memories, 3))
    assert request.messages == (
        Message(role="system", content="sys"),
        Message(role="user", content="question 1"),
        Message(role="assistant", content="second"),
        Message(role="user", content="question 0"),
        Message(role="assistant", content="best"),
        Message(role="user", content="why?"),
    )
    assert (request.max_tokens, request.seed, request.stop, request.temperature) == (7, 3, ("END",), 0.0)
    assert output == "done"


def test_without_memories_only_the_question_is_asked():
    request, _ = play(FewShotAgent(system="sys").episode("why?", [], 0))
    assert [message.role for message in request.messages] == ["system", "user"]


def test_leaving_the_best_memory_out_keeps_the_prompt_before_it():
    agent = FewShotAgent(system="sys")
    memories = [make_entry(number) for number in range(4)]
    full, _ = play(agent.episode("q", memories, 0))
    without, _ = play(agent.episode("q", memories[1:], 0))
    shared = len(without.messages) - 1
    assert full.messages[:shared] == without.messages[:shared]


def test_a_template_fills_its_slot_best_first():
    agent = TemplateAgent(template="Notes:\n{memories}End.", item="{request} => {response};")
    request, output = play(agent.episode("why?", [make_entry(0, "a"), make_entry(1, "b")], 5))
    assert request.messages[0].content == "Notes:\nquestion 0 => a;question 1 => b;End."
    assert request.messages[1] == Message(role="user", content="why?")
    assert (request.seed, output) == (5, "done")


@given(st.text(alphabet="{}requestponmi ", max_size=40))
def test_braces_in_memory_text_are_never_filled(text):
    agent = TemplateAgent(template="<{memories}>", item="[{response}]")
    request, _ = play(agent.episode("q", [make_entry(0, text)], 0))
    assert request.messages[0].content == f"<[{text}]>"


def test_a_request_that_spells_a_slot_does_not_pull_the_response_in():
    agent = TemplateAgent(template="{memories}", item="{request}|{response}")
    entry = make_entry(0, "secret")
    object.__setattr__(entry, "request", "{response} {memories}")
    request, _ = play(agent.episode("q", [entry], 0))
    assert request.messages[0].content == "{response} {memories}|secret"


@pytest.mark.parametrize("template", ["", "no slot", "{memories}{memories}"])
def test_a_template_without_exactly_one_slot_is_refused(template):
    with pytest.raises(UsageError, match="exactly once"):
        TemplateAgent(template=template)


def test_agents_are_built_from_settings():
    assert load_agent({"kind": "few-shot", "system": "s", "stop": ["a"]}) == FewShotAgent(system="s", stop=("a",))
    assert load_agent({"system": "s"}) == FewShotAgent(system="s")
    template = {"kind": "template", "template": "{memories}"}
    assert load_agent(template) == TemplateAgent(template="{memories}")


class Echo:
    name = "echo"

    def episode(self, query, memories, seed):
        yield from ()
        return query


def test_an_import_path_names_an_agent_of_the_users_own():
    agent = load_agent({"kind": f"{__name__}:Echo"})
    assert isinstance(agent, Echo)
    assert isinstance(agent, Agent)


NOT_AN_AGENT = "text"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "few-shots"}, "neither a built-in name nor an import path"),
        ({"kind": "no.such.module:Agent"}, "cannot be imported"),
        ({"kind": f"{__name__}:Missing"}, "cannot be imported"),
        ({"kind": f"{__name__}:NOT_AN_AGENT"}, "is not a class or function"),
        ({"kind": f"{__name__}:dict"}, "cannot be imported"),
        ({"kind": "builtins:dict"}, "has no name or no episode"),
        ({"kind": "few-shot"}, "'system' is missing; its fields are system, max_tokens"),
        ({"kind": "few-shot", "system": "s", "temprature": 1}, "'temprature' is no field of it; its fields are"),
    ],
)
def test_settings_that_name_no_agent_are_refused_in_one_line(settings, message):
    with pytest.raises(UsageError, match=message) as failure:
        load_agent(settings)
    assert "\n" not in str(failure.value)


def test_an_import_path_is_bounded_in_messages():
    with pytest.raises(UsageError) as failure:
        load_object("x" * 5000, "agent")
    assert len(str(failure.value)) < 300


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "template", "template": 5}, "template is 5, expected text"),
        ({"kind": "few-shot", "system": {}}, "system is {}, expected text"),
        ({"kind": "few-shot", "system": "s", "max_tokens": "many"}, "max_tokens is 'many', expected a whole number"),
        ({"kind": "few-shot", "system": "s", "temperature": True}, "temperature is True, expected a number"),
        ({"kind": "few-shot", "system": "s", "stop": [1]}, "expected a list of texts"),
        ({"kind": "few-shot", "system": "s", "stop": "x"}, "expected a list of texts"),
    ],
)
def test_settings_of_another_type_are_refused_before_the_first_replay(settings, message):
    with pytest.raises(UsageError) as failure:
        load_agent(settings)
    assert message in str(failure.value)


class FromFile(FewShotAgent):
    """A user's own, with other fields than the class that it builds on."""

    def __init__(self, prompt_file) -> None:
        super().__init__(system=f"as in {prompt_file}")


def test_a_users_own_subclass_is_built_by_its_own_fields():
    agent = load_agent({"kind": f"{__name__}:FromFile", "prompt_file": "p.txt"})
    assert isinstance(agent, FewShotAgent)
    assert agent.system == "as in p.txt"
    with pytest.raises(UsageError, match="'prompt_file' is missing; its fields are prompt_file"):
        load_agent({"kind": f"{__name__}:FromFile"})
