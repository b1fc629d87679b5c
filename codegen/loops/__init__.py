"""Operators as plain loops over arrays of any rank and type:
what every operator can be printed as, where no faster kernel knows it.
"""
