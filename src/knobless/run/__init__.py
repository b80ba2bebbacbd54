"""Ask, tell, evaluate in order, record, replay, stop."""
