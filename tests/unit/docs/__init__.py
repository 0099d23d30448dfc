"""The documentation is true: generated parts are current, examples exist, links lead somewhere."""
