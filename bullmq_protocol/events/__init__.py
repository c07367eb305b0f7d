"""The events of a queue's stream, and callers that wait for one of them."""
