"""Pages, radix tree and the tensors behind them."""
