"""Everything slotune keeps (studies, measurements, findings) or reads (metric sources)."""
