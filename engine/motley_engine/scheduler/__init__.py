"""The only place that decides: queues, batches, step plans."""
