"""The Server's HTTP interface: thin routes over the functions of `clumsies.server`."""
