"""Tests of motley_operator. A package, unlike the other test folders: pytest would otherwise name these modules
``operator.tests...`` and replace the standard library's ``operator``."""
