"""The released version, alone in a module so that a build can read it without importing more."""

VERSION = "0.1.0"
