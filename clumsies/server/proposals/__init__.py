"""What people propose: drafts, their reconciliation, reviews and merges."""
