"""Everything slotune keeps (studies, measurements, findings) or reads (metric sources)."""

from storage.database import Database, open_database
from storage.errors import StorageError, StudyExistsError
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
    "StudyExistsError",
    "Verification",
    "open_database",
]
