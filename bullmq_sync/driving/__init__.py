"""What a worker's driver is made of: one module for each concern."""
