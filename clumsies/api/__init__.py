"""The Server's HTTP messages, for both ends: what a request and an answer look like.

Requests refuse unknown fields by name. Answers are read with unknown fields ignored, so that an
older client understands a newer Server. A field that is absent and one that is null are the same.
"""
