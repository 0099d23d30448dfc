"""What an audit will take, before it is made."""
