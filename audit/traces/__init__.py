"""What an agent's telemetry says, as events that an audit takes: read without a network or any tracing SDK."""
