"""The notebooks' panels, one module for each notebook that has any."""
