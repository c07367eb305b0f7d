"""Metrics, traces and stack texts; no library for them is imported here."""
