"""Many jobs: what runs them, what keeps their rows, and the jobs of `lfopt batch`."""
