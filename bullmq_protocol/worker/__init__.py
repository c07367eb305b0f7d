"""The worker as a state machine: events in, actions out. See `machine` for its rules."""
