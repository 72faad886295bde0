"""Pure planning library: inventory, model facts, partition, memory, plan. Imports no torch and no cluster client."""
