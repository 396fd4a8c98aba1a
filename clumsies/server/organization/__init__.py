"""An organisation's people and settings, and how the Server is."""
