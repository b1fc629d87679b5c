"""Learned validity, explanations of it, controls that need no learning, and the splitting that they guide. Only training and GNNExplainer need torch."""
