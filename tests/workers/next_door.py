"""A module next to the worker's file."""

GREETING = "hello from next door"
