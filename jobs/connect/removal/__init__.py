"""Taking memories out of the system that an agent uses: backup, deletion, evidence, receipt."""
