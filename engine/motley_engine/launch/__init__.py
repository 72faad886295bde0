"""Start, supervision and end of the processes of one replica."""
