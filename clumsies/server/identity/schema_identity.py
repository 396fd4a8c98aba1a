"""Tables of sign-in. A token is kept as its SHA-256 alone: whoever reads the database has none.

| table | what |
| --- | --- |
| sessions | one sign-in of one person; it lives as long as it is refreshed |
| session_tokens | its tokens; `parent_hash` names the refresh token that gave it |
| personal_tokens | long-lived tokens of machines without a browser |
| login_transactions | sign-ins between the redirect to the identity provider and its answer |
| authorization_codes | one-time codes between that answer and the client's exchange |
| identity_provider | what setup was told, where the environment names no provider; one row |
| setup_codes | one-time codes printed by `clumsies server init`, and the cookies they gave |
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, String, Table, Text

from clumsies.server.schema import metadata

sessions = Table(
    "sessions",
    metadata,
    Column("session_id", String, primary_key=True),
    Column("user_id", ForeignKey("users.user_id"), nullable=False, index=True),
    Column("client_kind", String, nullable=False),
    Column("created_at", String, nullable=False),
    Column("revoked_at", String),
)
session_tokens = Table(
    "session_tokens",
    metadata,
    Column("token_hash", String, primary_key=True),
    Column("session_id", ForeignKey("sessions.session_id"), nullable=False, index=True),
    Column("kind", String, nullable=False),  # access | refresh
    Column("parent_hash", String, index=True),
    Column("used_at", String),
    Column("voided_at", String),
    Column("created_at", String, nullable=False),
    Column("expires_at", String, nullable=False),
)
personal_tokens = Table(
    "personal_tokens",
    metadata,
    Column("token_id", String, primary_key=True),
    Column("token_hash", String, nullable=False, unique=True),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False, index=True),
    Column("user_id", ForeignKey("users.user_id"), nullable=False, index=True),
    Column("name", String, nullable=False),
    Column("created_by", String),
    Column("created_at", String, nullable=False),
    Column("expires_at", String),
    Column("last_used_at", String),
    Column("revoked_at", String),
)
login_transactions = Table(
    "login_transactions",
    metadata,
    Column("state_hash", String, primary_key=True),
    Column("purpose", String, nullable=False),  # client | setup
    Column("client_kind", String, nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("client_state", Text),
    Column("code_challenge", String),  # the client's
    Column("nonce", String, nullable=False),
    Column("code_verifier", String, nullable=False),  # ours, for the identity provider
    Column("setup_code_hash", String),
    Column("created_at", String, nullable=False),
    Column("expires_at", String, nullable=False),
)
authorization_codes = Table(
    "authorization_codes",
    metadata,
    Column("code_hash", String, primary_key=True),
    Column("user_id", ForeignKey("users.user_id"), nullable=False),
    Column("client_kind", String, nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("code_challenge", String, nullable=False),
    Column("session_id", String),  # set where it was exchanged: a second exchange ends the session
    Column("created_at", String, nullable=False),
    Column("expires_at", String, nullable=False),
)
identity_provider = Table(
    "identity_provider",
    metadata,
    Column("only_row", Boolean, primary_key=True),
    Column("issuer", String, nullable=False),
    Column("client_id", String, nullable=False),
    Column("client_secret", String),
    Column("allowed_domains", String, nullable=False),  # separated by commas; empty: any
    Column("updated_at", String, nullable=False),
)
setup_codes = Table(
    "setup_codes",
    metadata,
    Column("code_hash", String, primary_key=True),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False),
    Column("cookie_hash", String, unique=True),
    Column("cookie_expires_at", String),
    Column("expires_at", String, nullable=False),
    Column("completed_at", String),
)
