"""Every decoder of untrusted bytes, with hypothesis."""
