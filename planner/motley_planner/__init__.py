"""Pure planning library: inventory, model facts, partition, memory, plan. Imports neither torch nor a cluster client."""
