"""What activations did, the cases that people judged, and the numbers that follow from them."""
