"""Durable storage: database policy, the local database, objects, generations, project storage."""
