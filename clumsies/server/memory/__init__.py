"""What an organisation knows: objects, Refs, projects and their selections, and publishing."""
