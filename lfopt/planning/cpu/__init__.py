"""Schedules for CPUs: what each thread runs, in which rings, and where threads wait."""
