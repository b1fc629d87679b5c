"""Learned validity, explanations of it, baselines that need no learning, and SPLIT.

Only training and GNNExplainer need torch.
"""
