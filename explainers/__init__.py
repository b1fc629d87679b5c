"""Learned validity, explanations of it, controls that need no learning, and SPLIT.

Only training and GNNExplainer need torch.
"""
