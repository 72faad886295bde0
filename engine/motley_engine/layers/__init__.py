"""Building blocks with explicit shards."""
