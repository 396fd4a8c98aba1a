"""The `clumsies` command line, one file a command group."""
