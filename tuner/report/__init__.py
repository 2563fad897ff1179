"""What a run, a sweep or a study has shown, for people: text, flags, tables."""
