"""How tool calls are prepared for a model and read back from what it wrote."""
