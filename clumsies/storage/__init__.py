"""Durable storage: database policy, later objects and generations."""
