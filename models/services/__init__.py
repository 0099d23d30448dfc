"""Models as services of a Ray cluster: actors host them, one on each place that the cluster has for one."""
