"""Single pairs of AgentDojo through the whole pipeline; skipped where the package is missing."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("agentdojo") is None:
    pytest.skip("AgentDojo is not installed (extra: agentdojo)", allow_module_level=True)

from benchmarks.gate.agentdojo_bridge import dojo, study
from benchmarks.gate.agentdojo_bridge.defences import DEFENCES, SuiteDefences
from benchmarks.gate.agentdojo_bridge.gating import pipeline
from benchmarks.gate.agentdojo_bridge.obedient import ATTACKERS, ObedientModel
from benchmarks.gate.agentdojo_bridge.verdict import Returned, Verdict


def play(suite_name: str, user: int, attack: int | None, defence: str) -> study.Outcome:
    suite = dojo.load_suites()[suite_name]
    user_task = suite.user_tasks[f"user_task_{user}"]
    task = None if attack is None else suite.injection_tasks[f"injection_task_{attack}"]
    env = dojo.environment(suite, {} if task is None else dojo.injections(suite, user_task, task))
    return study.play(suite, SuiteDefences(suite_name), defence, user_task, task, env)


def test_the_suites_have_949_pairs() -> None:
    suites = dojo.load_suites()
    assert sum(len(suite.user_tasks) * len(suite.injection_tasks) for suite in suites.values()) == dojo.PAIRS


@pytest.mark.parametrize("defence", ["none", "signature"])
def test_without_a_gate_the_script_obeys_and_the_attacker_gets_what_he_wants(defence: str) -> None:
    outcome = play("banking", 4, 0, defence)
    assert outcome.obeyed
    assert outcome.strict
    assert outcome.targeted


@pytest.mark.parametrize("defence", ["deny", "retry", "authority", "repair"])
def test_behind_a_gate_the_script_obeys_and_nothing_comes_of_it(defence: str) -> None:
    outcome = play("banking", 4, 0, defence)
    assert outcome.obeyed
    assert not outcome.strict
    assert not outcome.targeted
    assert outcome.denied > 0


def test_authority_keeps_the_utility_that_coarse_taint_costs() -> None:
    assert play("banking", 4, None, "none").utility
    assert not play("banking", 4, None, "deny").utility
    assert play("banking", 4, None, "repair").utility
    assert play("banking", 4, 0, "repair").utility


def test_an_answer_that_obeys_is_cut_down_to_the_users_part() -> None:
    assert play("travel", 5, 6, "none").strict
    assert not play("travel", 5, 6, "repair").strict


@pytest.mark.parametrize("attack", range(6, 14))
def test_our_own_plans_carry_out_the_goals_that_come_without_a_ground_truth(attack: int) -> None:
    assert play("workspace", 1, attack, "none").strict


def test_a_defence_sees_tool_arguments_outputs_and_nothing_of_whose_call_it_is() -> None:
    seen: list[Any] = []

    class Spy:
        def judge(self, *arguments: Any) -> Verdict:
            seen.append(arguments)
            return Verdict(arguments=arguments[2])

        def judge_answer(self, request: str, text: str, returned: Any) -> str:
            return text

    suite = dojo.load_suites()["banking"]
    user_task, task = suite.user_tasks["user_task_4"], suite.injection_tasks["injection_task_0"]
    agent, _, answer = pipeline(ObedientModel(user_task, task), Spy())
    env = dojo.environment(suite, dojo.injections(suite, user_task, task))
    suite.run_task_with_pipeline(agent, user_task, task, {}, environment=env)
    assert any(call.id == ATTACKERS for message in answer.messages for call in message.get("tool_calls") or ())
    assert seen
    for request, tool, arguments, returned in seen:
        assert request == user_task.PROMPT
        assert isinstance(tool, str)
        assert ATTACKERS not in str(arguments)
        assert all(isinstance(output, Returned) and ATTACKERS not in output.text for output in returned)


def test_two_runs_of_a_user_task_give_equal_rows() -> None:
    suite = dojo.load_suites()["slack"]
    task = suite.user_tasks["user_task_1"]
    rows = [study.run_user_task(suite, SuiteDefences("slack"), task, DEFENCES) for _ in range(2)]
    assert rows[0] == rows[1]
