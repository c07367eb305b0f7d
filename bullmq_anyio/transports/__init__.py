"""Transports over clients that the user has; each module alone imports its client."""
