"""Who asks: sessions, tokens, sign-in with a provider, and the first set-up."""
