"""Plans: the groups of a scheme with their modes, rows made at a time, steps and place in memory."""
