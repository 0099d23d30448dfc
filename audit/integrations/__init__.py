"""Guards of the memory systems that agents really use, and how a record of theirs is an entry of a signed store.

Importing it loads no such system. One file a system; `memory_audit.jobs.connect` reads their files by the same rules.
"""
