"""One module per revision, oldest 0001. A released revision is never edited."""
