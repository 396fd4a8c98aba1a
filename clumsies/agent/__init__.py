"""What coding agents meet: the MCP proxy. It knows the daemon's light client and floors 0 and 1."""
