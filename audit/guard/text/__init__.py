"""The forms in which a written memory is read: as displayed, in chunks, without disguise."""
