"""AgentDojo (arXiv 2406.13352) as a benchmark of the sensitive-action gate, without a language model."""
