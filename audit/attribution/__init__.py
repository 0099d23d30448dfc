"""Which entry caused it: retrieval, agents, harm, ablation plans, replay outcomes, counterfactual influence."""
