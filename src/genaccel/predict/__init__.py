"""What a workload needs, in closed form. No torch here: a laptop can ask."""
