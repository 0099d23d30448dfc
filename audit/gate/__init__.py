"""May this tool call be made? Each sensitive value is traced to who wrote it."""
