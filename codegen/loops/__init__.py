"""Operators as plain loops over arrays of any rank and type, where no faster kernel takes them."""
