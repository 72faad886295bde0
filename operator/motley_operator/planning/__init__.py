"""From an InferenceService to plans: cards, what the object asks of them, and the planner's answer."""
