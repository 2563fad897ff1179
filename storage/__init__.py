"""Everything slotune keeps (studies, measurements, findings) or reads (metric sources)."""

from storage.database import Database, open_database
from storage.errors import StorageError
from storage.rows import (
    Finding,
    Measurement,
    NewFinding,
    NewVerification,
    Study,
    Verification,
)

__all__ = [
    "Database",
    "Finding",
    "Measurement",
    "NewFinding",
    "NewVerification",
    "StorageError",
    "Study",
    "Verification",
    "open_database",
]
