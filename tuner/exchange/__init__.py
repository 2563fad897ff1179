"""Runs in and out of slotune: one shape for what was measured, stored, or read from a file."""
