"""What a user declares, and how it is encoded."""
