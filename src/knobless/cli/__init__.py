"""The `knobless` command."""
