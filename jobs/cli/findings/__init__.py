"""Commands about findings, of scans and audits."""
