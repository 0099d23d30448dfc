"""Where the odds of the harm are measured: words of the harm span, and divergence points."""
