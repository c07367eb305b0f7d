"""The directed cases of every section, and the branches they must reach."""
