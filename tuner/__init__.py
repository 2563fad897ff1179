"""slotune's tuner: measure, judge against SLOs, search, prove. Library and CLI alike."""
