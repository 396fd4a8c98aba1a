"""What keeps this machine in step with a Server: credentials, client, drafts and commits."""
