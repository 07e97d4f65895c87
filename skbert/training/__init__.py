"""Running networks: device, precision, batches."""
