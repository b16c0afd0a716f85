"""Training: one loop for every workload, strategy and device; a strategy is one file with a function ``wrap``."""
