"""Text: bytes decoded without loss, and sentences with exact offsets."""
