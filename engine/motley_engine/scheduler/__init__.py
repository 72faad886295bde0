"""The only place that decides: queues, batches, step plans.

Start at ``loop``: one turn hears the server (``intake``), decides the next step (``room`` retracts, ``admission`` hands
out pages and prompt tokens in the order of ``policy``, ``batch`` builds the flat arrays), starts it, and takes over the
results of the one before (``settle``). ``roster`` holds every live request, ``rows`` the running ones as arrays; pages
are the business of ``motley_engine.cache.ledger``.
"""
