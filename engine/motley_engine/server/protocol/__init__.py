"""Request bodies and answers of the two APIs, as types."""
