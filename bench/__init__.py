"""Measurements, side by side with BullMQ on Node: `python -m bench`."""
