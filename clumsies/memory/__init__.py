"""What a memory is made of: Markdown on disk, drafts over an installed commit, Effective Memory."""
