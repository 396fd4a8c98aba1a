"""The resident daemon: one process per user that owns all local state, and how to talk to it.

`wire`, `messages` and `client` are light: they import neither asyncio nor a third party other
than msgspec, so that short-lived processes start fast.
"""
