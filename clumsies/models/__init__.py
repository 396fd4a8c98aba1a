"""Pinned model profiles and the sessions that run them."""
