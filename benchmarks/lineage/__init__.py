"""The deterministic harness of MemLineage's idea: a scripted agent, three defences, attacks that succeed without one.

    python -m benchmarks.lineage             everything; rewrites benchmarks/results/lineage*.json and lineage_tau_k.svg
    python -m benchmarks.lineage --rows      only print the rows, as canonical JSON

Parts: `matrix` (defences x workloads), `tau_sweep` (τ x K over five attribution configurations), `tool_workloads`
(coarse taint against parameter-level authority), `latency` (the only one with times, in a result of its own). The rows
of the first three hold no time, path, key or hash, so two runs, on any machines, give the same bytes.
"""
