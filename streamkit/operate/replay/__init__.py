"""Run handlers again for changes of the past, where their items are still as those left them."""
