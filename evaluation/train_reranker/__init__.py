"""Retraining of the compact reranker: data, network, training, export and judgment.

Only ``model``, ``training`` and ``export`` import PyTorch, which the optional extra ``train``
installs; nothing under ``clumsies`` imports this package.
"""
