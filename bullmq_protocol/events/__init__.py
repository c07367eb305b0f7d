"""The events of a queue's stream, and those who wait for one of them."""
