"""The error of every model source."""


class SourceError(ValueError):
    """A model URI that leads to no usable files. The text names the URI, the fault and the way out."""
