"""The authority: an organisation's truth behind HTTP, and the same program in-process for one
person without a Server.

Commits, trees and blobs are immutable and content-addressed; a Ref is moved by one transaction that
keeps everything it now names. Every request acts for one organisation, that of its user.
"""
