"""What a memory is made of: Markdown on disk, later drafts and Effective Memory."""
