"""Sequences of items that users clicked, from a table of clicks."""
