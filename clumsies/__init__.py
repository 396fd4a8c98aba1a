"""Memory for teams whose coding agents work beside them."""
