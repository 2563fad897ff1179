"""Everything slotune keeps (studies, measurements, findings) or reads (metric sources)."""

from storage.database import Database, open_database
from storage.errors import StorageError
from storage.rows import Finding, Measurement, NewFinding, Study

__all__ = [
    "Database",
    "Finding",
    "Measurement",
    "NewFinding",
    "StorageError",
    "Study",
    "open_database",
]
