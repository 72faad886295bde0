"""Hypothesis without deadlines: a loaded machine must not fail a correct test."""

from hypothesis import settings

settings.register_profile("motley", deadline=None)
settings.load_profile("motley")
