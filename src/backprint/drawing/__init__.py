"""Pictures and pages: forward down the left, backward up the right, saved tensors as bridges between them."""
